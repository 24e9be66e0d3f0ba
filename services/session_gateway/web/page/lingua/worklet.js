// Generated from sdk/js/src/microphone/worklet.ts by `make js`. Do not edit.

// src/microphone/worklet.ts
var BLOCK_MS = 20;
var Recorder = class extends AudioWorkletProcessor {
  #block = new Float32Array(Math.round(sampleRate * BLOCK_MS / 1e3));
  #filled = 0;
  #stopped = false;
  constructor() {
    super();
    this.port.onmessage = () => {
      this.#stopped = true;
    };
  }
  process(inputs) {
    const [channel] = inputs[0] ?? [];
    for (let at = 0; channel !== void 0 && at < channel.length; ) {
      const size = Math.min(channel.length - at, this.#block.length - this.#filled);
      this.#block.set(channel.subarray(at, at + size), this.#filled);
      this.#filled += size;
      at += size;
      if (this.#filled === this.#block.length) {
        const full = this.#block;
        this.#block = new Float32Array(full.length);
        this.#filled = 0;
        this.port.postMessage(full, [full.buffer]);
      }
    }
    return !this.#stopped;
  }
};
registerProcessor("lingua-recorder", Recorder);
