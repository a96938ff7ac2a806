"""How ToolBench and StepTool evaluate: a search over decisions (DFSDT), and a judge that votes on conversations."""
