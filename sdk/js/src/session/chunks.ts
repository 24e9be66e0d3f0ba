/** Cuts the app's audio into chunks that the server accepts. No I/O, no clock. */

import { type AudioFormat, frameBytes, pcmDurationMs } from "../audio-format.js";
import type { Direction } from "../events.js";
import type { Speaker } from "../protocol/kept-chunks.js";

/** The audio of one chunk, and when its end was recorded, in milliseconds since the epoch. */
export interface Piece {
  readonly data: Uint8Array;
  readonly clientMs: number;
}

const EMPTY = new Uint8Array();
const SPEAKERS: readonly Speaker[] = ["a", "b"];

/**
 * Cuts PCM into chunks of whole samples; Opus packets stay as they are. An incomplete sample waits
 * for the next audio, so an app may split its audio anywhere.
 */
export class Cutter {
  #format: AudioFormat;
  #directions: readonly Direction[];
  #chunkBytes: number;
  #rest = EMPTY;
  #at: number | null;
  #lastMs = 0;

  /**
   * @param directions the fixed direction, or both directions of a conversation.
   * @param chunkMs the longest chunk of PCM.
   */
  constructor(format: AudioFormat, directions: readonly Direction[], chunkMs: number) {
    this.#format = format;
    this.#directions = directions;
    const frames = Math.max(1, Math.floor((format.sampleRateHz * chunkMs) / 1000));
    this.#chunkBytes = frames * frameBytes(format);
    this.#at = directions.length === 1 ? 0 : null;
  }

  /** Who speaks in the latest audio. */
  get speaker(): Speaker {
    const isFixed = this.#directions.length === 1 || this.#at === null;
    return isFixed ? "none" : (SPEAKERS[this.#at ?? 0] ?? "none");
  }

  /** Sets who speaks in the audio that follows. Throws RangeError, and changes nothing then. */
  setDirection(direction: Direction | undefined): void {
    const found = this.#find(direction);
    if (this.#rest.length > 0 && found !== this.#at) {
      throw new RangeError(
        "audio: the audio before the change of direction ends within a sample: " +
          `${this.#rest.length} of ${frameBytes(this.#format)} bytes`,
      );
    }
    this.#at = found;
  }

  #find(direction: Direction | undefined): number {
    const allowed = this.#directions.map(({ src, tgt }) => `${src} to ${tgt}`).join(" or ");
    if (direction === undefined) {
      if (this.#directions.length === 1) {
        return 0;
      }
      throw new RangeError(`direction: is required, and must be ${allowed} in this session`);
    }
    const found = this.#directions.findIndex(
      ({ src, tgt }) => isSame(src, direction.src) && isSame(tgt, direction.tgt),
    );
    if (found < 0) {
      const given = `${direction.src} to ${direction.tgt}`;
      throw new RangeError(`direction: ${given} must be ${allowed} in this session`);
    }
    return found;
  }

  /**
   * Returns the chunks of some audio.
   *
   * @param data PCM of any size, or one Opus packet. It must not change later.
   * @param endMs when its end was recorded. The times of earlier chunks are counted back from it.
   * @param maxBytes the largest chunk that the server accepts.
   */
  cut(data: Uint8Array, endMs: number, maxBytes: number): Piece[] {
    if (this.#format.encoding === "OPUS") {
      if (data.length > maxBytes) {
        const most = `at most ${maxBytes} bytes`;
        throw new RangeError(`audio: an Opus packet has ${most}, not ${data.length}`);
      }
      return [{ data, clientMs: this.stamp(endMs) }];
    }
    const all = this.#rest.length === 0 ? data : concatenated(this.#rest, data);
    const frame = frameBytes(this.#format);
    const whole = all.length - (all.length % frame);
    this.#rest = all.slice(whole);
    const size = Math.min(this.#chunkBytes, Math.max(frame, maxBytes - (maxBytes % frame)));
    const pieces: Piece[] = [];
    for (let start = 0; start < whole; start += size) {
      const end = Math.min(start + size, whole);
      const clientMs = this.stamp(endMs - pcmDurationMs(this.#format, whole - end));
      pieces.push({ data: all.subarray(start, end), clientMs });
    }
    return pieces;
  }

  /** Returns the time of a chunk. Times never go back, although clocks are adjusted. */
  stamp(clientMs: number): number {
    this.#lastMs = Math.max(this.#lastMs, Math.floor(clientMs));
    return this.#lastMs;
  }

  /** Throws RangeError if the audio so far cannot be the end of an utterance. */
  checkFinish(): void {
    if (this.#at === null) {
      throw new RangeError("direction: nothing was sent yet, so there is no utterance to end");
    }
    const rest = this.takeRest();
    if (rest > 0) {
      throw new RangeError(`audio: ends with ${rest} bytes of an incomplete sample`);
    }
  }

  /** Drops the bytes of an incomplete sample, and returns how many there were. */
  takeRest(): number {
    const { length } = this.#rest;
    this.#rest = EMPTY;
    return length;
  }
}

function isSame(a: string, b: string): boolean {
  return a.toLowerCase() === b.toLowerCase();
}

function concatenated(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const joined = new Uint8Array(a.length + b.length);
  joined.set(a);
  joined.set(b, a.length);
  return joined;
}
