// The peers that run under Node: one process, told by lines of JSON on standard input, answering in kind.
//   {"load": PATH}  the workload: a line of JSON (chunk lengths by answer), then the bytes
//   {"run": NAME}   run once, say how long it took and what was found
// It runs with the folder that holds node_modules as its working directory.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

async function optional(name) {
  try {
    return await import(name);
  } catch {
    return undefined;
  }
}

const parser = await optional("eventsource-parser");
const rxjs = await optional("rxjs");
const sdk = await optional("@anthropic-ai/sdk");

let answers = [];

/** The same loop as in Python: content joined at a block's stop, tool input parsed once. */
function handLoop() {
  const found = { text_characters: 0, blocks: 0, tool_characters: 0, events: 0 };
  const wholes = [];
  let parts = [];
  let kind = "";
  return {
    event(data) {
      found.events++;
      if (data.type === "content_block_delta") {
        const delta = data.delta;
        if (delta.type === "text_delta") parts.push(delta.text);
        else if (delta.type === "thinking_delta") parts.push(delta.thinking);
        else if (delta.type === "input_json_delta") parts.push(delta.partial_json);
      } else if (data.type === "content_block_start") {
        kind = data.content_block.type;
        parts = [];
      } else if (data.type === "content_block_stop") {
        const whole = parts.join("");
        found.blocks++;
        if (kind === "tool_use") JSON.parse(whole || "{}");
        wholes.push([kind, whole]);
      }
    },
    found() {
      for (const [kind, whole] of wholes) {
        if (kind === "tool_use") found.tool_characters += points(whole);
        else found.text_characters += points(whole);
      }
      return found;
    },
  };
}

/** Characters as Python counts them: code points, not UTF-16 units. */
function points(text) {
  let count = 0;
  for (const _ of text) count++;
  return count;
}

function client() {
  let turn = 0;
  const fetch = async () => {
    const chunks = answers[turn++];
    let at = 0;
    const body = new ReadableStream({
      pull(controller) {
        if (at < chunks.length) controller.enqueue(chunks[at++]);
        else controller.close();
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
  return new sdk.default({ apiKey: "bench", baseURL: "http://bench.invalid", fetch, maxRetries: 0 });
}

const REQUEST = { model: "claude-bench-1", max_tokens: 1, messages: [{ role: "user", content: "bench" }] };

const contenders = {};

if (parser) {
  contenders["Node: eventsource-parser + loop"] = () => {
    const loop = handLoop();
    for (const chunks of answers) {
      const decoder = new TextDecoder();
      const sse = parser.createParser({ onEvent: (event) => loop.event(JSON.parse(event.data)) });
      for (const chunk of chunks) sse.feed(decoder.decode(chunk, { stream: true }));
    }
    return loop.found;
  };
}

if (parser && rxjs) {
  contenders["Node: eventsource-parser + rxjs"] = () => {
    const loop = handLoop();
    for (const chunks of answers) {
      const decoder = new TextDecoder();
      let ready = [];
      const sse = parser.createParser({ onEvent: (event) => ready.push(event.data) });
      rxjs
        .from(chunks)
        .pipe(
          rxjs.map((chunk) => decoder.decode(chunk, { stream: true })),
          rxjs.concatMap((text) => {
            ready = [];
            sse.feed(text);
            return ready;
          }),
          rxjs.map((data) => JSON.parse(data)),
        )
        .subscribe((data) => loop.event(data));
    }
    return loop.found;
  };
}

if (sdk) {
  contenders["Node: anthropic SDK, raw events"] = async () => {
    const loop = handLoop();
    const made = client();
    for (const _ of answers) {
      for await (const event of await made.messages.create({ ...REQUEST, stream: true })) loop.event(event);
    }
    return loop.found;
  };
  contenders["Node: anthropic SDK, messages.stream()"] = async () => {
    const messages = [];
    const made = client();
    for (const _ of answers) {
      const stream = made.messages.stream(REQUEST);
      for await (const _event of stream) {
        // looked at, as a display would
      }
      messages.push(await stream.finalMessage());
    }
    return () => {
      const found = { text_characters: 0, blocks: 0 };
      for (const message of messages) {
        for (const block of message.content) {
          found.blocks++;
          if (block.type === "text") found.text_characters += points(block.text);
          else if (block.type === "thinking") found.text_characters += points(block.thinking);
        }
      }
      return found;
    };
  };
}

function load(path) {
  const data = readFileSync(path);
  const head = data.indexOf(10);
  let at = head + 1;
  // Each chunk has memory of its own, as one from a socket has.
  answers = JSON.parse(data.subarray(0, head)).map((lengths) =>
    lengths.map((length) => Uint8Array.prototype.slice.call(data, at, (at += length))),
  );
  return { loaded: answers.length };
}

async function run(name) {
  if (globalThis.gc) globalThis.gc();
  const start = process.hrtime.bigint();
  const found = await contenders[name]();
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  return { seconds, found: found() };
}

console.log(JSON.stringify({ node: process.version, contenders: Object.keys(contenders) }));
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  try {
    console.log(JSON.stringify(order.load ? load(order.load) : await run(order.run)));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error?.stack ?? error) }));
  }
}
