#!/bin/sh
# Made by `tandem launch --on ray`. It submits the job; what is here of RAY_ADDRESS says where.
set -e
ray job submit --address http://head:8265 --submission-id quickstart-1 --no-wait --entrypoint-num-cpus 8 --entrypoint-memory 6442450944 --runtime-env env.yaml -- sh -c 'cd '\''/home/ada/my work'\'' && exec /opt/tandem/bin/tandem launch '\''/home/ada/my work/quickstart.yaml'\'' --on local --run-dir /data/runs/quickstart-1 --restarts 100 run.steps=20 '\''model.now=it'\''\'\'''\''s noon'\'' trainer.threads=8 rollout.threads=4'
