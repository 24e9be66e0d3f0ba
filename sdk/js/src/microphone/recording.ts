/** A recording that an app reads while it is made. */

import { MicrophoneError } from "../errors.js";
import { Segmenter } from "./segmenter.js";
import type { VoiceActivityOptions } from "./voice-activity.js";

/** A piece of a recording, for `Session.send`. */
export interface RecordedBlock {
  /** 16-bit samples of one channel in `Microphone.format`. */
  readonly samples: Int16Array<ArrayBuffer>;
  /** When the end of the block was recorded, in milliseconds since the epoch. */
  readonly recordedAt: number;
  /** The speaker has stopped: the utterance ends with this block. Only with voice activity. */
  readonly isFinal: boolean;
}

export interface RecordingOptions {
  /** Yield only speech, and mark the end of each utterance. True: with the default settings. */
  readonly voiceActivity?: boolean | VoiceActivityOptions;
  /** With voice activity: how much is kept from before speech was noticed; 300 ms by default. */
  readonly preRollMs?: number;
}

const PRE_ROLL_MS = 300;
/** How much an app may leave unread. */
const MAX_UNREAD_MS = 60_000;

/**
 * Yields what a microphone records, from the call of `Microphone.record` on until `stop`.
 *
 *     const recording = microphone.record();
 *     button.onpointerup = () => recording.stop();
 *     for await (const block of recording) {
 *       await session.send(block.samples, block);
 *     }
 *     await session.finish();
 *
 * Throws MicrophoneError if the microphone is lost, or if the app reads too slowly.
 */
export class Recording implements AsyncIterable<RecordedBlock> {
  readonly #rateHz: number;
  readonly #segmenter: Segmenter | null;
  readonly #onEnd: (recording: Recording) => void;
  #blocks: RecordedBlock[] = [];
  #unreadSamples = 0;
  #ended = false;
  #error: MicrophoneError | null = null;
  #wake: () => void = () => undefined;

  /** For the SDK: apps get recordings from `Microphone.record`. */
  constructor(
    rateHz: number,
    { voiceActivity = false, preRollMs = PRE_ROLL_MS }: RecordingOptions,
    onEnd: (recording: Recording) => void,
  ) {
    this.#rateHz = rateHz;
    this.#onEnd = onEnd;
    const detection = typeof voiceActivity === "object" ? voiceActivity : {};
    this.#segmenter = voiceActivity === false ? null : new Segmenter(rateHz, preRollMs, detection);
  }

  /** Whether somebody speaks now. Without voice activity: whether it records. */
  get speaking(): boolean {
    return !this.#ended && (this.#segmenter?.speaking ?? true);
  }

  /** Ends the recording. What was recorded until now can still be read. */
  stop(): void {
    if (!this.#ended) {
      const last = this.#segmenter?.flush() ?? null;
      if (last !== null) {
        this.#put({ samples: last.samples, recordedAt: Date.now(), isFinal: true });
      }
      this.#end(null);
    }
  }

  /** For the microphone: takes samples whose end was recorded at this time. */
  put(samples: Int16Array<ArrayBuffer>, recordedAt: number): void {
    if (this.#ended || samples.length === 0) {
      return;
    }
    if (this.#segmenter === null) {
      this.#put({ samples, recordedAt, isFinal: false });
      return;
    }
    const piece = this.#segmenter.push(samples);
    if (piece !== null) {
      this.#put({ samples: piece.samples, recordedAt, isFinal: piece.isFinal });
    }
  }

  /** For the microphone: it cannot record any more. */
  fail(error: MicrophoneError): void {
    this.#end(error);
  }

  [Symbol.asyncIterator](): AsyncIterator<RecordedBlock, undefined> {
    return {
      next: () => this.#next(),
      return: () => {
        this.stop();
        return Promise.resolve({ done: true, value: undefined });
      },
    };
  }

  async #next(): Promise<IteratorResult<RecordedBlock, undefined>> {
    for (;;) {
      const block = this.#blocks.shift();
      if (block !== undefined) {
        this.#unreadSamples -= block.samples.length;
        return { done: false, value: block };
      }
      if (this.#error !== null) {
        throw this.#error;
      }
      if (this.#ended) {
        return { done: true, value: undefined };
      }
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  #put(block: RecordedBlock): void {
    this.#blocks.push(block);
    this.#unreadSamples += block.samples.length;
    if (this.#unreadSamples > (this.#rateHz * MAX_UNREAD_MS) / 1000) {
      const what = `the recording was not read for ${MAX_UNREAD_MS / 1000} s`;
      this.#end(new MicrophoneError("NOT_READ", what));
    }
    this.#wake();
  }

  #end(error: MicrophoneError | null): void {
    if (!this.#ended) {
      this.#ended = true;
      this.#error = error;
      this.#onEnd(this);
      this.#wake();
    }
  }
}
