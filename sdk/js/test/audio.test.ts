/** Recordings and speech, without a browser. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { MicrophoneError } from "../src/errors.js";
import { Recording } from "../src/microphone/recording.js";
import { Player } from "../src/player/player.js";
import { soundOf } from "../src/player/speech-audio.js";
import { wav } from "./browser.js";
import { FakeContext } from "./fake-audio.js";

const PCM = { encoding: "PCM_S16LE", sampleRateHz: 22_050, channels: 1 } as const;

describe("a recording", () => {
  test("yields what was recorded until it is stopped, also later", async () => {
    const ended: Recording[] = [];
    const recording = new Recording(16_000, {}, (each) => ended.push(each));
    recording.put(Int16Array.of(1), 10);
    recording.put(Int16Array.of(2), 20);
    recording.stop();
    recording.put(Int16Array.of(3), 30);
    const got = [];
    for await (const block of recording) {
      got.push([block.samples[0], block.recordedAt, block.isFinal]);
    }
    assert.deepEqual(got, [
      [1, 10, false],
      [2, 20, false],
    ]);
    assert.deepEqual(ended, [recording]);
  });

  test("that is left by break is stopped", async () => {
    const recording = new Recording(16_000, {}, () => undefined);
    recording.put(Int16Array.of(1), 10);
    for await (const block of recording) {
      assert.equal(block.samples.length, 1);
      break;
    }
    assert.equal(recording.speaking, false);
  });

  test("that is not read for a minute fails, after what was kept", async () => {
    const recording = new Recording(16_000, {}, () => undefined);
    for (let seconds = 0; seconds < 100; seconds += 1) {
      recording.put(new Int16Array(16_000), 0);
    }
    let read = 0;
    await assert.rejects(
      async () => {
        for await (const block of recording) {
          read += block.samples.length;
        }
      },
      { name: "MicrophoneError", reason: "NOT_READ" },
    );
    assert.equal(read, 61 * 16_000);
  });

  test("of a microphone that is lost fails", async () => {
    const recording = new Recording(16_000, {}, () => undefined);
    const next = recording[Symbol.asyncIterator]().next();
    recording.fail(new MicrophoneError("DEVICE_LOST", "gone"));
    await assert.rejects(next, { reason: "DEVICE_LOST" });
  });
});

describe("speech", () => {
  test("PCM of two channels is taken apart", () => {
    const bytes = new Uint8Array(Int16Array.of(16_384, -16_384, 0, -32_768).buffer);
    const sound = soundOf(bytes, { ...PCM, channels: 2 });
    assert.deepEqual(
      sound.channels.map((each) => [...each]),
      [
        [0.5, 0],
        [-0.5, -1],
      ],
    );
  });

  test("a WAV file has its own format, wherever it lies in memory", () => {
    const file = wav(Int16Array.of(8192, -8192), 11_025);
    const shifted = new Uint8Array([9, ...file]).subarray(1);
    const sound = soundOf(shifted, PCM);
    assert.equal(sound.sampleRateHz, 11_025);
    assert.deepEqual([...(sound.channels[0] ?? [])], [0.25, -0.25]);
  });

  test("what cannot be played is refused with a reason", () => {
    const broken = new Uint8Array(wav(Int16Array.of(1), 8000));
    broken[20] = 3;
    for (const [speech, format] of [
      [new Uint8Array(), PCM],
      [new Uint8Array(10), null],
      [new Uint8Array(10), { ...PCM, encoding: "OPUS" }],
      [broken, null],
      [broken.subarray(0, 20), null],
    ] as const) {
      assert.throws(() => soundOf(speech, format), { reason: "UNSUPPORTED_FORMAT" });
    }
  });
});

describe("a player", () => {
  // Headless browsers play without a tap, so this one is made up.
  const { context: blocked } = Object.assign(new FakeContext(), {
    state: "suspended",
    onResume: "hang",
  });
  const silence = { speech: new Uint8Array(100), speechFormat: PCM };

  test("that the browser blocks says that a tap is needed, and tells the session nothing", async () => {
    const told: string[] = [];
    const session = {
      playbackStarted: (): void => void told.push("started"),
      playbackEnded: (): void => void told.push("ended"),
    };
    const player = new Player({ context: blocked, session });
    await assert.rejects(player.play(silence), { name: "PlayerError", reason: "BLOCKED" });
    assert.deepEqual(told, []);
  });

  test("that is closed, or has no browser around it, says so", async () => {
    const player = new Player({ context: blocked });
    await player.close();
    await assert.rejects(player.play(silence), { reason: "CLOSED" });
    await assert.rejects(new Player().play(silence), { reason: "NOT_SUPPORTED" });
  });
});
