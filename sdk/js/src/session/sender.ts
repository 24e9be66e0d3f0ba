/** Takes audio from the app, cuts it into chunks, and hands them to the protocol. */

import { BufferFullError } from "../errors.js";
import type { Direction } from "../events.js";
import type { SessionState } from "../protocol/state.js";
import type { Cutter } from "./chunks.js";

/** 16-bit samples, or bytes: little-endian PCM or one Opus packet. */
export type Audio = Int16Array | Uint8Array | ArrayBuffer;

export interface SendOptions {
  /** Who speaks. Required in a conversation. */
  readonly direction?: Direction;
  /** The speaker has finished: the utterance ends with this audio. */
  readonly isFinal?: boolean;
  /**
   * When the end of the audio was recorded, in milliseconds since the epoch; now by default. A gap
   * that is longer than a pause ends an utterance.
   */
  readonly recordedAt?: number;
}

export interface SenderOptions {
  readonly state: SessionState;
  readonly cutter: Cutter;
  readonly maxUnacknowledgedBytes: number;
  /** Throws if nothing can be sent. */
  readonly checkWritable: () => void;
  /** There may be something to write. */
  readonly wake: () => void;
  /** Returns when the condition holds or the session has ended. Throws if it was lost. */
  readonly until: (condition: () => boolean) => Promise<void>;
}

/** The sending half of a session. */
export class Sender {
  #options: SenderOptions;
  /** Bytes of calls that are waiting. */
  #waitingBytes = 0;
  /** Keeps the chunks of one call together, and calls in order. */
  #queue: Promise<unknown> = Promise.resolve();

  constructor(options: SenderOptions) {
    this.#options = options;
  }

  /** See `Session.send`. */
  async send(audio: Audio, { direction, isFinal = false, recordedAt }: SendOptions): Promise<void> {
    const { checkWritable, maxUnacknowledgedBytes } = this.#options;
    checkWritable();
    const waiting = this.#waitingBytes + audio.byteLength;
    if (waiting > maxUnacknowledgedBytes) {
      throw new BufferFullError(waiting, maxUnacknowledgedBytes);
    }
    // Copied: the caller may use its buffer again.
    const data = bytesOf(audio).slice();
    if (data.length === 0 && !isFinal) {
      throw new RangeError("audio: is empty; call finish() to end the utterance");
    }
    const endMs = recordedAt === undefined ? Date.now() : checkedTime(recordedAt);
    this.#waitingBytes += data.length;
    try {
      await this.#inOrder(() => this.#add(data, direction, isFinal, endMs));
    } finally {
      this.#waitingBytes -= data.length;
    }
  }

  async #add(
    data: Uint8Array,
    direction: Direction | undefined,
    isFinal: boolean,
    endMs: number,
  ): Promise<void> {
    const { state, cutter, checkWritable, until, wake, maxUnacknowledgedBytes } = this.#options;
    checkWritable();
    cutter.setDirection(direction);
    const pieces = data.length > 0 ? cutter.cut(data, endMs, state.limits.maxChunkBytes) : [];
    if (isFinal) {
      cutter.checkFinish();
      if (pieces.length === 0) {
        pieces.push({ data, clientMs: cutter.stamp(endMs) });
      }
    }
    for (const [at, piece] of pieces.entries()) {
      await until(() => state.kept.bytes <= maxUnacknowledgedBytes);
      checkWritable();
      const isLast = isFinal && at === pieces.length - 1;
      state.kept.add({ ...piece, isFinal: isLast, speaker: cutter.speaker });
      wake();
    }
  }

  /** See `Session.finish`. */
  async finish(): Promise<void> {
    const { state, cutter, checkWritable, wake } = this.#options;
    await this.#inOrder(() => {
      checkWritable();
      cutter.checkFinish();
      const clientMs = cutter.stamp(Date.now());
      const data = new Uint8Array();
      state.kept.add({ data, clientMs, isFinal: true, speaker: cutter.speaker });
      wake();
    });
  }

  /** See `Session.close`. */
  async close(): Promise<void> {
    const { state, cutter, checkWritable, until, wake } = this.#options;
    await this.#inOrder(() => {
      if (!state.over && !state.closing) {
        checkWritable();
        cutter.takeRest();
        state.closing = true;
        wake();
      }
    });
    await until(() => false);
  }

  /** Runs a step after all earlier ones, even if those failed. */
  async #inOrder(step: () => void | Promise<void>): Promise<void> {
    const run = this.#queue.then(step);
    this.#queue = run.catch(() => undefined);
    await run;
  }
}

/** Returns a time in whole milliseconds, if the contract allows it. */
function checkedTime(recordedAt: number): number {
  const ms = typeof recordedAt === "number" ? Math.floor(recordedAt) : NaN;
  if (!Number.isSafeInteger(ms) || ms < 0) {
    throw new RangeError(
      `recordedAt: ${String(recordedAt)} must be milliseconds since the epoch, from 0 to 2^53 - 1`,
    );
  }
  return ms;
}

function bytesOf(audio: Audio): Uint8Array {
  if (audio instanceof ArrayBuffer) {
    return new Uint8Array(audio);
  }
  // 16-bit samples are little-endian on every platform that has browsers or Node.js.
  return new Uint8Array(audio.buffer, audio.byteOffset, audio.byteLength);
}
