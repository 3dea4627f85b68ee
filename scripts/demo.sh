#!/bin/sh
# The demo: the example recordings, at twice the recorded pace, into all three sinks.
set -eu
turnstream=$1
mkdir -p .demo
rm -f .demo/session.jsonl .demo/metrics.json
status=0
"$turnstream" replay examples/*.sse --ui plain --speed 2 --transcript .demo/session.jsonl --metrics table || status=$?
echo
# Two of the five examples fail on purpose: one by an error event, one cut off.
if [ "$status" -ne 1 ]; then
    echo "demo: expected exit status 1 (two of the examples fail on purpose), got $status" >&2
    exit 1
fi
echo "demo: the transcript is in .demo/session.jsonl ($(wc -l <.demo/session.jsonl | tr -d ' ') lines); it begins:"
head -c 300 .demo/session.jsonl
echo …
