/** Speech as samples that a browser can play. No I/O. */

import type { AudioFormat } from "../audio-format.js";
import { PlayerError } from "../errors.js";

/** Samples by channel, from -1 to 1. */
export interface Sound {
  readonly sampleRateHz: number;
  readonly channels: readonly Float32Array<ArrayBuffer>[];
}

/**
 * Returns the samples of speech: 16-bit PCM in its format, or a WAV file of 16-bit PCM, which has
 * its format in itself. Throws PlayerError.
 */
export function soundOf(speech: Uint8Array, format: AudioFormat | null): Sound {
  if (textAt(speech, 0) === "RIFF" && textAt(speech, 8) === "WAVE") {
    return soundOfWav(speech);
  }
  if (format?.encoding !== "PCM_S16LE") {
    const what = format === null ? "speech without a known format" : format.encoding;
    throw new PlayerError("UNSUPPORTED_FORMAT", `${what} cannot be played; PCM_S16LE and WAV can`);
  }
  return deinterleaved(speech, format.sampleRateHz, format.channels);
}

function deinterleaved(bytes: Uint8Array, sampleRateHz: number, count: number): Sound {
  const frames = Math.floor(bytes.length / 2 / count);
  if (frames === 0) {
    throw new PlayerError("UNSUPPORTED_FORMAT", "there is no speech to play");
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const channels = Array.from({ length: count }, (_, channel) => {
    const samples = new Float32Array(frames);
    for (let at = 0; at < frames; at += 1) {
      samples[at] = view.getInt16(2 * (at * count + channel), true) / 32_768;
    }
    return samples;
  });
  return { sampleRateHz, channels };
}

const PCM = 1;
const WAV_HEADER_BYTES = 12;
const CHUNK_HEADER_BYTES = 8;
const FORMAT_BYTES = 16;

function soundOfWav(file: Uint8Array): Sound {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  let format: { readonly channels: number; readonly sampleRateHz: number } | null = null;
  for (let at = WAV_HEADER_BYTES; at + CHUNK_HEADER_BYTES <= file.length;) {
    const name = textAt(file, at);
    const start = at + CHUNK_HEADER_BYTES;
    // A stream that was written on the fly may not know its length.
    const size = Math.min(view.getUint32(at + 4, true), file.length - start);
    if (name === "fmt " && size >= FORMAT_BYTES) {
      format = wavFormat(view, start);
    } else if (name === "data" && format !== null) {
      const data = file.subarray(start, start + size);
      return deinterleaved(data, format.sampleRateHz, format.channels);
    }
    at = start + size + (size % 2);
  }
  throw new PlayerError("UNSUPPORTED_FORMAT", "the WAV file has no format or no data");
}

function wavFormat(view: DataView, at: number): { channels: number; sampleRateHz: number } {
  const encoding = view.getUint16(at, true);
  const channels = view.getUint16(at + 2, true);
  const bits = view.getUint16(at + 14, true);
  if (encoding !== PCM || bits !== 16 || channels < 1 || channels > 2) {
    const what = `the WAV file has encoding ${encoding}, ${bits} bits and ${channels} channels`;
    throw new PlayerError("UNSUPPORTED_FORMAT", `${what}; 16-bit PCM of one or two can be played`);
  }
  return { channels, sampleRateHz: view.getUint32(at + 4, true) };
}

function textAt(bytes: Uint8Array, at: number): string {
  return String.fromCharCode(...bytes.subarray(at, at + 4));
}
