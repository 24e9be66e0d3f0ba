/** The microphone, the player and a session in a real browser, under a strict policy. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { noBrowser, TestBrowser, wav } from "./browser.js";
import { ack, closed, result, speechFrame } from "./events.js";

import type { Speech } from "../src/index.js";

type Sdk = typeof import("../src/index.js");

declare const sdk: Sdk;

const RATE = 48_000;

/** A second of a tone in syllables, then a second and a half of silence. */
function heard(): Buffer {
  const samples = Int16Array.from({ length: RATE * 2.5 }, (_, at) => {
    const isSound = at < RATE && at % (RATE / 5) < RATE / 7;
    return isSound ? 12_000 * Math.sin((2 * Math.PI * 440 * at) / RATE) : 0;
  });
  return wav(samples, RATE);
}

/** What the browser does to voices would change the tone. */
const PLAIN = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };

describe("in Chromium", { skip: noBrowser }, () => {
  const browser = new TestBrowser();
  before(() => browser.start(heard()));
  after(() => browser.stop());

  test("the microphone records at 16 kHz, without gaps, what it hears", async () => {
    const page = await browser.page();
    const got = await page.evaluate(async (constraints) => {
      const microphone = await sdk.Microphone.open({ constraints });
      const recording = microphone.record();
      const began = performance.now();
      const samples: number[] = [];
      for await (const block of recording) {
        samples.push(...block.samples);
        if (samples.length >= 16_000 * 5) {
          break;
        }
      }
      const tookMs = performance.now() - began;
      await microphone.close();
      return { samples, tookMs, rate: microphone.deviceRateHz, format: microphone.format };
    }, PLAIN);
    assert.deepEqual(got.format, { encoding: "PCM_S16LE", sampleRateHz: 16_000, channels: 1 });
    assert([44_100, 48_000].includes(got.rate), `${got.rate}`);
    assert(got.tookMs > 4500, `5 s of audio in ${got.tookMs} ms`);
    // Two rounds of the file: 10 syllables, each with about 63 periods of 440 Hz.
    let crossings = 0;
    for (let at = 1; at < got.samples.length; at += 1) {
      const [before_ = 0, here = 0] = [got.samples[at - 1], got.samples[at]];
      crossings += before_ < 0 && here >= 0 && here - before_ > 100 ? 1 : 0;
    }
    assert(crossings > 500 && crossings < 760, `${crossings} periods`);
    assert(Math.max(...got.samples) > 6000);
    await page.context().close();
  });

  test("voice activity yields utterances, each with its end", async () => {
    const page = await browser.page();
    const finals = await page.evaluate(async (constraints) => {
      const microphone = await sdk.Microphone.open({ constraints });
      const ends: number[] = [];
      let samples = 0;
      for await (const block of microphone.record({ voiceActivity: true })) {
        samples += block.samples.length;
        if (block.isFinal) {
          ends.push(samples / 16);
          samples = 0;
        }
        if (ends.length === 2) {
          break;
        }
      }
      await microphone.close();
      return ends;
    }, PLAIN);
    // The first may have begun in the middle. The second: a second of sound, what came before, and
    // the hangover.
    const [, second = 0] = finals;
    assert(second > 1200 && second < 2300, `${finals.join(", ")} ms`);
    await page.context().close();
  });

  const failures = [
    { name: "no permission", reason: "NO_PERMISSION", page: { microphone: false }, options: {} },
    {
      name: "no secure context",
      reason: "NO_SECURE_CONTEXT",
      page: { secure: false },
      options: {},
    },
    { name: "no such device", reason: "NO_DEVICE", page: {}, options: { deviceId: "none" } },
    { name: "no worklet", reason: "WORKLET_FAILED", page: {}, options: { workletUrl: "/x.js" } },
  ];
  for (const failure of failures) {
    test(`${failure.name} is a typed error`, async () => {
      const page = await browser.page(failure.page);
      const got = await page.evaluate(async (options) => {
        try {
          await sdk.Microphone.open(options);
          return ["", "it opened"];
        } catch (error) {
          return error instanceof sdk.MicrophoneError
            ? [error.reason, error.message]
            : ["", String(error)];
        }
      }, failure.options);
      assert.equal(got[0], failure.reason, got[1]);
      await page.context().close();
    });
  }

  test("speech is played in order, stopped and replayed, and the session is told", async () => {
    const page = await browser.page();
    await page.evaluate(() => {
      const told: string[] = [];
      const session = {
        playbackStarted: () => told.push("started"),
        playbackEnded: () => told.push("ended"),
      };
      const player = new sdk.Player({ session });
      Object.assign(globalThis, { told, player });
      document.querySelector("button")?.addEventListener("click", () => void player.unlock());
    });
    await page.click("button");
    const got = await page.evaluate(async () => {
      const { told, player } = globalThis as unknown as {
        told: string[];
        player: InstanceType<Sdk["Player"]>;
      };
      const speechOf = (ms: number, rate: number): Speech => ({
        speech: new Uint8Array((2 * rate * ms) / 1000),
        speechFormat: { encoding: "PCM_S16LE", sampleRateHz: rate, channels: 1 } as const,
      });
      const began = performance.now();
      const order: string[] = [];
      await Promise.all(
        [22_050, 16_000, 48_000].map(async (rate) => {
          order.push(`${rate} ${await player.play(speechOf(150, rate))}`);
        }),
      );
      const tookMs = performance.now() - began;
      const long = player.play(speechOf(60_000, 16_000));
      const waiting = player.play(speechOf(50, 16_000));
      while (!player.playing) {
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
      const replayed = await player.replay(speechOf(50, 16_000));
      const after_ = [await long, replayed, await waiting];
      after_.push(await player.replay(speechOf(50, 16_000)));
      const stopped = player.play(speechOf(60_000, 16_000));
      player.stop();
      after_.push(await stopped);
      await player.close();
      return { order, tookMs, after_, told };
    });
    assert.deepEqual(got.order, ["22050 played", "16000 played", "48000 played"]);
    assert(got.tookMs > 430, `${got.tookMs} ms`);
    assert.deepEqual(got.after_, ["stopped", "played", "played", "played", "stopped"]);
    assert.deepEqual(got.told.slice(0, 4), ["started", "ended", "started", "ended"]);
    await page.context().close();
  });

  test("a session works with the browser's own WebSocket, and explains refusals", async () => {
    const page = await browser.page();
    const talking = page.evaluate(async () => {
      const session = await sdk.Session.open({
        addresses: location.origin,
        languages: { src: "en", tgt: "es" },
        token: "header.payload.signature",
      });
      await session.send(new Int16Array(1600), { isFinal: true });
      await session.close();
      const results = [];
      for await (const each of session.results()) {
        results.push(each.type === "result" ? [...each.speech] : []);
      }
      return results;
    });
    const socket = await browser.peer.sockets.next();
    await socket.opens();
    assert.equal((await socket.audio()).data.length, 3200);
    socket.socket.send(speechFrame(0, [1, 2, 3]));
    socket.say(ack(1), result(0), closed(1));
    assert.deepEqual(await talking, [[1, 2, 3]]);
    browser.peer.refuse = () => ({ status: 401, reason: "UNAUTHENTICATED" });
    const refusal = await page.evaluate(async () => {
      try {
        await sdk.Session.open({ addresses: location.origin, languages: { src: "en", tgt: "es" } });
        return "";
      } catch (error) {
        return error instanceof sdk.SessionRefusedError ? error.reason : String(error);
      }
    });
    browser.peer.refuse = () => null;
    assert.equal(refusal, "UNAUTHENTICATED");
    await page.context().close();
  });
});
