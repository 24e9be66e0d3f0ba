/**
 * Finds out by loudness when somebody speaks. No I/O, no clock.
 *
 * The noise of the room is the lowest level of the last seconds: speech has gaps between its
 * syllables, and noise has none. So the detector follows a room that becomes louder, and a fan that
 * is switched on is taken for speech only until that time has passed.
 */

export interface VoiceActivityOptions {
  /** How much louder than the room speech is, in decibels; 9 by default. */
  readonly aboveNoiseDb?: number;
  /** The lowest level of speech, in decibels of full scale; -55 by default. */
  readonly leastDb?: number;
  /** How long a sound has to last to be speech; 60 ms by default. Clicks are shorter. */
  readonly onsetMs?: number;
  /** How long after the last sound speech ends; 600 ms by default. Pauses within it are shorter. */
  readonly hangoverMs?: number;
}

export const FRAME_MS = 20;
/** Over how long the lowest level is the noise of the room. */
const NOISE_MS = 3000;
/** The level that silence has: digital silence would be infinitely low. */
const FLOOR_DB = -90;
/** Removes hum and wind below about 120 Hz at 16 kHz. */
const HIGH_PASS_HZ = 120;

/** Takes samples, and says after each block whether somebody speaks. */
export class VoiceActivity {
  readonly #frameSamples: number;
  readonly #aboveNoiseDb: number;
  readonly #leastDb: number;
  readonly #onsetFrames: number;
  readonly #hangoverFrames: number;
  readonly #highPass: number;
  /** The levels of the last NOISE_MS. */
  readonly #levels: number[] = [];
  #speaking = false;
  #loudFrames = 0;
  #quietFrames = 0;
  /** The current frame. */
  #energy = 0;
  #filled = 0;
  #lastIn = 0;
  #lastOut = 0;
  #smoothDb = FLOOR_DB;

  constructor(sampleRateHz: number, options: VoiceActivityOptions = {}) {
    this.#frameSamples = Math.round((sampleRateHz * FRAME_MS) / 1000);
    this.#aboveNoiseDb = options.aboveNoiseDb ?? 9;
    this.#leastDb = options.leastDb ?? -55;
    this.#onsetFrames = Math.max(1, Math.round((options.onsetMs ?? 60) / FRAME_MS));
    this.#hangoverFrames = Math.max(1, Math.round((options.hangoverMs ?? 600) / FRAME_MS));
    this.#highPass = 1 / (1 + (2 * Math.PI * HIGH_PASS_HZ) / sampleRateHz);
  }

  /** Whether somebody speaks. */
  get speaking(): boolean {
    return this.#speaking;
  }

  /** The level of the last frame, in decibels of full scale, for meters. */
  get levelDb(): number {
    return this.#levels.at(-1) ?? FLOOR_DB;
  }

  /** The noise of the room, in decibels of full scale. */
  get noiseDb(): number {
    return Math.max(FLOOR_DB, Math.min(...this.#levels, 0));
  }

  /** Takes a block of any size. Returns whether somebody speaks at its end. */
  push(samples: Int16Array): boolean {
    for (const sample of samples) {
      const value = sample / 32_768;
      this.#lastOut = this.#highPass * (this.#lastOut + value - this.#lastIn);
      this.#lastIn = value;
      this.#energy += this.#lastOut * this.#lastOut;
      this.#filled += 1;
      if (this.#filled === this.#frameSamples) {
        this.#onFrame(this.#energy / this.#filled);
        this.#energy = this.#filled = 0;
      }
    }
    return this.#speaking;
  }

  #onFrame(power: number): void {
    const level = Math.max(FLOOR_DB, 10 * Math.log10(power + 1e-12));
    // A little smoothing, so that one quiet frame of noise is not the noise of the room.
    this.#smoothDb = Math.max(FLOOR_DB, 0.6 * this.#smoothDb + 0.4 * level);
    const noise = this.#levels.length === 0 ? FLOOR_DB : this.noiseDb;
    this.#levels.push(Math.max(level, this.#smoothDb));
    if (this.#levels.length > NOISE_MS / FRAME_MS) {
      this.#levels.shift();
    }
    const isLoud = level > Math.max(this.#leastDb, noise + this.#aboveNoiseDb);
    this.#loudFrames = isLoud ? this.#loudFrames + 1 : 0;
    this.#quietFrames = isLoud ? 0 : this.#quietFrames + 1;
    if (!this.#speaking) {
      this.#speaking = this.#loudFrames >= this.#onsetFrames;
    } else if (this.#quietFrames >= this.#hangoverFrames) {
      this.#speaking = false;
    }
  }
}
