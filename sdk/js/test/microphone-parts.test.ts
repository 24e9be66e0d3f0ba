/** The resampler and the detection of speech, by signals. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { Resampler, toInt16 } from "../src/microphone/resampler.js";
import { Segmenter } from "../src/microphone/segmenter.js";
import { VoiceActivity } from "../src/microphone/voice-activity.js";
import { seeded } from "./driver.js";

const RATES = [8000, 11_025, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000];

function sine(rate: number, hz: number, seconds: number, level = 1): Float32Array {
  const step = (2 * Math.PI * hz) / rate;
  return Float32Array.from(
    { length: Math.round(rate * seconds) },
    (_, at) => level * Math.sin(step * at),
  );
}

function all(resampler: Resampler, input: Float32Array): Float32Array {
  return Float32Array.from([...resampler.push(input), ...resampler.flush()]);
}

/** The level of the middle of a signal, in decibels of a full sine; its ends have transients. */
function levelDb(signal: Float32Array): number {
  const middle = signal.slice(Math.floor(signal.length / 4), Math.floor((signal.length * 3) / 4));
  const power = middle.reduce((sum, value) => sum + value * value, 0) / middle.length;
  return 10 * Math.log10(2 * power + 1e-20);
}

describe("the resampler", () => {
  test("passes speech unchanged: the level is right within 0.1 dB up to 7 kHz", () => {
    for (const rate of RATES) {
      for (const hz of [50, 300, 1000, 3000, 6900].filter((each) => each < rate * 0.43)) {
        const level = levelDb(all(new Resampler(rate, 16_000), sine(rate, hz, 0.5)));
        assert(Math.abs(level) < 0.1, `${hz} Hz of ${rate}: ${level} dB`);
      }
    }
  });

  test("removes what would come back as noise: at least 75 dB from 8 kHz on", () => {
    for (const rate of RATES.filter((each) => each > 16_000)) {
      for (const hz of [8050, 8500, 9000, 10_500, 12_000, 15_000, 15_900, 17_000, 20_000, 23_000]) {
        if (hz < rate / 2) {
          const level = levelDb(all(new Resampler(rate, 16_000), sine(rate, hz, 0.5)));
          assert(level < -75, `${hz} Hz of ${rate}: ${level} dB`);
        }
      }
    }
  });

  test("makes no images when it adds samples", () => {
    const out = all(new Resampler(8000, 16_000), sine(8000, 1000, 1));
    const ideal = sine(16_000, 1000, 1);
    const error = out.map((value, at) => value - (ideal[at] ?? 0));
    assert(levelDb(error) < -70, `${levelDb(error)} dB`);
  });

  test("neither delays nor stretches: the output lies on the input", () => {
    for (const rate of [44_100, 48_000]) {
      const out = all(new Resampler(rate, 16_000), sine(rate, 1000, 1));
      const ideal = sine(16_000, 1000, 1);
      const error = out.map((value, at) => value - (ideal[at] ?? 0));
      assert(levelDb(error) < -70, `${rate}: ${levelDb(error)} dB`);
    }
  });

  test("blocks of any size give the same samples", () => {
    const random = seeded(3);
    const input = Float32Array.from({ length: 20_000 }, () => random() * 2 - 1);
    for (const rate of [44_100, 48_000, 22_050]) {
      const whole = all(new Resampler(rate, 16_000), input);
      for (const largest of [1, 7, 128, 5000]) {
        const resampler = new Resampler(rate, 16_000);
        const pieces: number[] = [];
        for (let at = 0; at < input.length;) {
          const size = 1 + Math.floor(random() * largest);
          pieces.push(...resampler.push(input.subarray(at, at + size)));
          at += size;
        }
        pieces.push(...resampler.flush());
        assert.deepEqual(Float32Array.from(pieces), whole, `${rate}, up to ${largest}`);
      }
    }
  });

  test("a long stream has the right number of samples", () => {
    for (const rate of [44_100, 48_000]) {
      const resampler = new Resampler(rate, 16_000);
      const block = new Float32Array(rate / 2);
      let count = 0;
      for (let half = 0; half < 2 * 60; half += 1) {
        count += resampler.push(block).length;
      }
      const behind = 60 * 16_000 - count;
      assert(behind >= 0 && behind <= (resampler.delaySamples * 16_000) / rate + 1, `${behind}`);
      assert.equal(count + resampler.flush().length, 60 * 16_000);
    }
  });

  test("the same rate is passed through, and a new stream starts after flush", () => {
    const input = sine(16_000, 440, 0.1);
    assert.deepEqual(all(new Resampler(16_000, 16_000), input), input);
    const resampler = new Resampler(48_000, 16_000);
    const again = sine(48_000, 440, 0.1);
    assert.deepEqual(all(resampler, again), all(resampler, again));
  });

  test("samples are clipped, not wrapped", () => {
    assert.deepEqual(
      [...toInt16(Float32Array.of(0, 0.5, 1, 2, -1, -2))],
      [0, 16_384, 32_767, 32_767, -32_768, -32_768],
    );
  });
});

/** White noise of this level, in decibels of full scale. */
function noise(seconds: number, db: number, random: () => number): Int16Array<ArrayBuffer> {
  const level = Math.sqrt(3) * 10 ** (db / 20);
  const length = Math.round(16_000 * seconds);
  return toInt16(Float32Array.from({ length }, () => level * (2 * random() - 1)));
}

/** Something with the shape of speech: a buzz in syllables of 150 ms with gaps of 60 ms. */
function syllables(seconds: number, db: number): Int16Array<ArrayBuffer> {
  const level = 10 ** (db / 20);
  const length = Math.round(16_000 * seconds);
  return toInt16(
    Float32Array.from({ length }, (_, at) => {
      const ms = (at / 16) % 210;
      const shape = ms < 150 ? Math.sin((Math.PI * ms) / 150) : 0;
      return 2 * level * shape * Math.sin((2 * Math.PI * 220 * at) / 16_000);
    }),
  );
}

function plus(a: Int16Array, b: Int16Array): Int16Array<ArrayBuffer> {
  return Int16Array.from(a, (value, at) => value + (b[at] ?? 0));
}

describe("voice activity", () => {
  test("silence and the noise of a room are not speech", () => {
    const random = seeded(1);
    for (const db of [-100, -70, -50, -35, -25]) {
      const voice = new VoiceActivity(16_000);
      // The first moment may be taken for speech: it has nothing to compare with.
      voice.push(noise(4, db, random));
      assert.equal(voice.speaking, false, `${db} dB`);
      voice.push(noise(2, db, random));
      assert.equal(voice.speaking, false, `${db} dB`);
    }
  });

  test("speech is found in quiet and in noise, all the way through, and ends", () => {
    const random = seeded(2);
    for (const [speechDb, noiseDb] of [
      [-20, -90],
      [-40, -70],
      [-20, -40],
      [-15, -30],
    ] as const) {
      const voice = new VoiceActivity(16_000);
      voice.push(noise(4, noiseDb, random));
      const speech = plus(syllables(10, speechDb), noise(10, noiseDb, random));
      let missed = 0;
      for (let at = 0; at < speech.length; at += 1600) {
        missed += voice.push(speech.subarray(at, at + 1600)) ? 0 : 1;
      }
      assert(missed <= 2, `${speechDb} in ${noiseDb}: ${missed} of 100 blocks missed`);
      voice.push(noise(1, noiseDb, random));
      assert.equal(voice.speaking, false);
    }
  });

  test("a click is not speech", () => {
    const voice = new VoiceActivity(16_000);
    voice.push(new Int16Array(16_000));
    voice.push(new Int16Array(300).fill(20_000));
    assert.equal(voice.push(new Int16Array(1600)), false);
  });

  test("a fan that is switched on is taken for speech for some seconds at most", () => {
    const random = seeded(4);
    const voice = new VoiceActivity(16_000);
    voice.push(noise(4, -60, random));
    voice.push(noise(6, -30, random));
    assert.equal(voice.speaking, false);
  });

  test("hum is not speech", () => {
    const voice = new VoiceActivity(16_000);
    voice.push(new Int16Array(64_000));
    assert.equal(voice.push(toInt16(sine(16_000, 50, 0.5, 0.005))), false);
  });
});

describe("the segmenter", () => {
  test("speech begins before it was noticed, and ends with a final piece", () => {
    const random = seeded(5);
    const segmenter = new Segmenter(16_000, 300);
    const room = noise(4, -70, random);
    const speech = syllables(2, -20);
    const stream = Int16Array.from([...room, ...speech, ...noise(2, -70, random)]);
    const pieces = [];
    for (let at = 0; at < stream.length; at += 320) {
      const piece = segmenter.push(stream.slice(at, at + 320));
      if (piece !== null) {
        pieces.push(piece);
      }
    }
    const [first] = pieces;
    assert(first !== undefined);
    const start = first.end - first.samples.length;
    assert(start < room.length, "the first syllable is cut off");
    assert(start > room.length - 0.4 * 16_000, `${(room.length - start) / 16} ms too early`);
    assert.deepEqual(
      pieces.map((piece) => piece.isFinal).filter(Boolean),
      [true],
      "it is one utterance",
    );
    assert.equal(pieces.at(-1)?.isFinal, true);
    // Without a gap.
    const samples = pieces.reduce((sum, piece) => sum + piece.samples.length, 0);
    assert.equal(samples, (pieces.at(-1)?.end ?? 0) - start);
  });

  test("a stream that ends within speech ends the utterance", () => {
    const segmenter = new Segmenter(16_000, 300);
    segmenter.push(new Int16Array(32_000));
    assert(segmenter.push(syllables(1, -20)) !== null);
    assert.equal(segmenter.flush()?.isFinal, true);
    assert.equal(segmenter.flush(), null);
  });
});
