/** The player and the microphone with contexts that do not run: no tap yet, or a phone call. */

import assert from "node:assert/strict";
import { describe, test, type TestContext } from "node:test";

import { MicrophoneError } from "../src/errors.js";
import { Microphone } from "../src/microphone/microphone.js";
import { Player } from "../src/player/player.js";
import { fakeBrowser, FakeContext } from "./fake-audio.js";

const PCM = { encoding: "PCM_S16LE", sampleRateHz: 16_000, channels: 1 } as const;
const SPEECH = { speech: new Uint8Array(100), speechFormat: PCM };

interface Scene {
  readonly context: FakeContext;
  readonly player: Player;
  readonly told: string[];
}

function scene(): Scene {
  const told: string[] = [];
  const session = {
    playbackStarted: (): void => void told.push("started"),
    playbackEnded: (): void => void told.push("ended"),
  };
  const context = new FakeContext();
  return { context, player: new Player({ context: context.context, session }), told };
}

/** Lets everything run that waits for nothing. */
async function settle(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

describe("a player", () => {
  test("replays speech although nothing is being played", async () => {
    const { context, player, told } = scene();
    const replayed = player.replay(SPEECH);
    await settle();
    assert.equal(context.sources.length, 1);
    context.sources[0]?.onended?.();
    assert.equal(await replayed, "played");
    assert.deepEqual(told, ["started", "ended"]);
  });

  test("replays instead of what is being played, and then goes on", async () => {
    const { context, player } = scene();
    const played = [player.play(SPEECH), player.play(SPEECH)];
    await settle();
    const replayed = player.replay(SPEECH);
    assert.equal(await played[0], "stopped");
    await settle();
    context.sources[1]?.onended?.();
    assert.equal(await replayed, "played");
    await settle();
    context.sources[2]?.onended?.();
    assert.equal(await played[1], "played");
  });

  test("goes on with what is being played if the other speech cannot be played", async () => {
    const { context, player } = scene();
    const played = player.play(SPEECH);
    await settle();
    await assert.rejects(player.replay({ speech: new Uint8Array(), speechFormat: null }));
    context.sources[0]?.onended?.();
    assert.equal(await played, "played");
  });

  for (const state of ["suspended", "interrupted"] as const) {
    for (const end of ["stop", "close"] as const) {
      test(`can be told to ${end} while its context is ${state}`, async () => {
        const { context, player, told } = scene();
        const played = [player.play(SPEECH), player.play(SPEECH)];
        await settle();
        assert.deepEqual(told, ["started"]);
        context.onResume = "hang";
        context.become(state);
        await player[end]();
        assert.deepEqual(await Promise.all(played), ["stopped", "stopped"]);
        await settle();
        assert.deepEqual(told, ["started", "ended"]);
      });
    }
  }

  test("can be stopped while it waits for its context", async () => {
    const { context, player, told } = scene();
    context.onResume = "hang";
    context.become("suspended");
    const played = player.play(SPEECH);
    await settle();
    player.stop();
    assert.equal(await played, "stopped");
    assert.deepEqual(told, []);
  });

  test("goes on after a phone call, and leaves an idle context alone", async () => {
    const { context, player } = scene();
    context.become("suspended");
    assert.equal(context.resumes, 0);
    context.become("running");
    const played = player.play(SPEECH);
    await settle();
    context.become("interrupted");
    assert.equal(context.resumes, 1);
    context.sources[0]?.onended?.();
    assert.equal(await played, "played");
    await player.close();
    context.become("interrupted");
    assert.equal(context.resumes, 1);
    assert.notEqual(context.state, "closed", "the context is the app's");
  });

  test("ends if the app closes its context", async () => {
    const { context, player, told } = scene();
    const played = player.play(SPEECH);
    await settle();
    await context.close();
    assert.equal(await played, "stopped");
    await assert.rejects(player.play(SPEECH), { reason: "CLOSED" });
    await settle();
    assert.deepEqual(told, ["started", "ended"]);
  });

  for (const onResume of ["hang", "fail"] as const) {
    test(`says that it is blocked if a resume must ${onResume}`, async (context) => {
      const { context: audio, player } = scene();
      context.mock.timers.enable({ apis: ["setTimeout"] });
      audio.onResume = onResume;
      audio.become("suspended");
      for (const attempt of [() => player.unlock(), () => player.play(SPEECH)]) {
        const refused = assert.rejects(attempt(), { name: "PlayerError", reason: "BLOCKED" });
        await settle();
        context.mock.timers.tick(2000);
        await refused;
      }
    });
  }
});

describe("a microphone", () => {
  async function opening(context: TestContext): Promise<unknown> {
    const outcome = Microphone.open().catch((error: unknown) => error);
    await settle();
    context.mock.timers.tick(2000);
    return outcome;
  }

  for (const onResume of ["hang", "fail"] as const) {
    test(`is released if nobody has tapped, and a resume must ${onResume}`, async (context) => {
      context.mock.timers.enable({ apis: ["setTimeout"] });
      const audio = new FakeContext();
      const microphone = fakeBrowser(context, audio);
      audio.state = "suspended";
      audio.onResume = onResume;
      const error = await opening(context);
      assert(error instanceof MicrophoneError);
      assert.equal(error.reason, "BLOCKED");
      assert.equal(microphone.stopped, 1);
      assert.equal(audio.state, "closed");
    });
  }

  test("that is refused leaves no rejection unhandled", async (context) => {
    context.mock.timers.enable({ apis: ["setTimeout"] });
    const unhandled: unknown[] = [];
    const onUnhandled = (error: unknown): void => void unhandled.push(error);
    process.on("unhandledRejection", onUnhandled);
    context.after(() => process.off("unhandledRejection", onUnhandled));
    const audio = new FakeContext();
    const microphone = fakeBrowser(context, audio);
    audio.state = "suspended";
    audio.onResume = "fail";
    microphone.refusal = new DOMException("no", "NotAllowedError");
    const error = await opening(context);
    assert(error instanceof MicrophoneError);
    assert.equal(error.reason, "NO_PERMISSION");
    await settle();
    assert.deepEqual(unhandled, []);
  });

  test("records again after a phone call, until it is closed", async (context) => {
    const audio = new FakeContext();
    fakeBrowser(context, audio);
    const microphone = await Microphone.open();
    audio.become("interrupted");
    assert.equal(audio.resumes, 1);
    await microphone.close();
    audio.become("interrupted");
    assert.equal(audio.resumes, 1);
  });
});
