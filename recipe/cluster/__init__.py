"""Training on several nodes: on a Ray cluster that somebody has started, and that stays when the run has ended.

On one machine Ray is started by the run and ends with it. In a cluster its workers are children of raylets that are not
ours, on machines that may lack the folder, the code or the packages of this one. So a start looks at each node first
(`each`, `facts`; `recipe.preflight.machine` judges), its workers take over environment and folder (`workers`), a node
that is lost is named (`watch`), and in the end each node is asked what is left (`recipe.launch.nodes`).
"""
