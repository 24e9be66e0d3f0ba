/** The layout of binary frames (docs/web.md). No I/O. */

import type { AudioChunk, Speaker } from "./kept-chunks.js";

const AUDIO = 1;
const SPEECH = 2;
const AUDIO_HEADER_BYTES = 20;
const SPEECH_HEADER_BYTES = 8;
const FLAG_FINAL = 1;
const SPEAKER_SHIFT = 1;
const SPEAKERS: Readonly<Record<Speaker, number>> = { none: 0, a: 1, b: 2 };

/** The speech of the result with this index. */
export interface Speech {
  readonly index: number;
  readonly data: Uint8Array;
}

/** Returns a chunk as a frame. */
export function audioFrame(chunk: AudioChunk): Uint8Array<ArrayBuffer> {
  const frame = new Uint8Array(AUDIO_HEADER_BYTES + chunk.data.length);
  const view = new DataView(frame.buffer);
  view.setUint8(0, AUDIO);
  const flags = (chunk.isFinal ? FLAG_FINAL : 0) | (SPEAKERS[chunk.speaker] << SPEAKER_SHIFT);
  view.setUint8(1, flags);
  view.setBigUint64(4, BigInt(chunk.seq));
  view.setBigUint64(12, BigInt(chunk.clientMs));
  frame.set(chunk.data, AUDIO_HEADER_BYTES);
  return frame;
}

/** Returns the speech in a frame of the gateway; null if this version does not know the frame. */
export function speechOf(frame: ArrayBuffer): Speech | null {
  if (frame.byteLength < SPEECH_HEADER_BYTES) {
    return null;
  }
  const view = new DataView(frame);
  if (view.getUint32(0) !== SPEECH << 24) {
    return null;
  }
  return { index: view.getUint32(4), data: new Uint8Array(frame, SPEECH_HEADER_BYTES) };
}
