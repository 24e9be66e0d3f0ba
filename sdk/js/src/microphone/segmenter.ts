/** Turns a stream of samples into stretches of speech. No I/O, no clock. */

import { VoiceActivity, type VoiceActivityOptions } from "./voice-activity.js";

/** A piece of a recording. */
export interface Piece {
  readonly samples: Int16Array<ArrayBuffer>;
  /** Where its end is in the stream, in samples from the beginning. */
  readonly end: number;
  /** Somebody spoke and has stopped: the utterance ends with this piece. */
  readonly isFinal: boolean;
}

/**
 * Keeps only speech. What came shortly before it is kept as well, so that the first syllable is not
 * cut off: it takes a moment to tell speech from a click.
 */
export class Segmenter {
  readonly #voice: VoiceActivity;
  readonly #preRollSamples: number;
  #recent: Int16Array<ArrayBuffer>[] = [];
  #recentSamples = 0;
  #at = 0;
  #speaking = false;

  constructor(sampleRateHz: number, preRollMs: number, options: VoiceActivityOptions = {}) {
    this.#voice = new VoiceActivity(sampleRateHz, options);
    this.#preRollSamples = Math.round((sampleRateHz * preRollMs) / 1000);
  }

  get speaking(): boolean {
    return this.#speaking;
  }

  /** Takes a block. Returns the piece of speech that it completes; null if nobody speaks. */
  push(samples: Int16Array<ArrayBuffer>): Piece | null {
    this.#at += samples.length;
    const wasSpeaking = this.#speaking;
    this.#speaking = this.#voice.push(samples);
    if (!wasSpeaking) {
      this.#keep(samples);
      return this.#speaking ? this.#piece(this.#takeRecent(), false) : null;
    }
    return this.#piece(samples, !this.#speaking);
  }

  /** Ends the stream. Returns an empty piece if somebody was speaking. */
  flush(): Piece | null {
    const wasSpeaking = this.#speaking;
    this.#speaking = false;
    this.#takeRecent();
    return wasSpeaking ? this.#piece(new Int16Array(), true) : null;
  }

  #piece(samples: Int16Array<ArrayBuffer>, isFinal: boolean): Piece {
    return { samples, end: this.#at, isFinal };
  }

  #keep(samples: Int16Array<ArrayBuffer>): void {
    this.#recent.push(samples);
    this.#recentSamples += samples.length;
    let [oldest] = this.#recent;
    while (oldest !== undefined && this.#recentSamples - oldest.length >= this.#preRollSamples) {
      this.#recentSamples -= oldest.length;
      this.#recent.shift();
      [oldest] = this.#recent;
    }
  }

  #takeRecent(): Int16Array<ArrayBuffer> {
    const all = new Int16Array(this.#recentSamples);
    let at = 0;
    for (const block of this.#recent) {
      all.set(block, at);
      at += block.length;
    }
    this.#recent = [];
    this.#recentSamples = 0;
    return all;
  }
}
