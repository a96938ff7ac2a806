"""Files of StepTool's two forms made into ours: conversations to warm up on, trajectories with a reward a step."""
