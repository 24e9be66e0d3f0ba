/**
 * Runs in the browser's audio thread: collects what the microphone records, and posts it in blocks.
 *
 * A file of its own, without imports, so that pages with a strict content security policy can load
 * it (no blob: or data: address), and every browser with AudioWorklet.
 */

interface Processor {
  readonly port: MessagePort;
  process(inputs: readonly (readonly Float32Array[])[]): boolean;
}

declare const AudioWorkletProcessor: new () => { readonly port: MessagePort };
declare const registerProcessor: (name: string, processor: new () => Processor) => void;
declare const sampleRate: number;

const BLOCK_MS = 20;

class Recorder extends AudioWorkletProcessor implements Processor {
  #block = new Float32Array(Math.round((sampleRate * BLOCK_MS) / 1000));
  #filled = 0;
  #stopped = false;

  constructor() {
    super();
    this.port.onmessage = (): void => {
      this.#stopped = true;
    };
  }

  process(inputs: readonly (readonly Float32Array[])[]): boolean {
    // Without a channel, the microphone delivers nothing at the moment.
    const [channel] = inputs[0] ?? [];
    for (let at = 0; channel !== undefined && at < channel.length;) {
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
}

registerProcessor("lingua-recorder", Recorder);
