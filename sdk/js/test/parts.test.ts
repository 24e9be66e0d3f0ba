/** The small parts of a session: chunks, queues, options, addresses, frames, kept chunks. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { SPEECH_FORMAT } from "../src/audio-format.js";
import type { Outcome, PartialText } from "../src/events.js";
import { audioFrame, speechOf } from "../src/protocol/frames.js";
import { KeptChunks } from "../src/protocol/kept-chunks.js";
import { eventsOf } from "../src/protocol/wire.js";
import { parseAddresses } from "../src/session/addresses.js";
import { Cutter } from "../src/session/chunks.js";
import { Inbox, UNREAD_EVENTS } from "../src/session/inbox.js";
import { checkOptions, type SessionOptions } from "../src/session/options.js";
import { SESSION_SORTING } from "../src/session/session.js";
import { TokenSource } from "../src/session/tokens.js";
import { seeded } from "./driver.js";
import { partial, result, speechFrame } from "./events.js";

const ENGLISH = { src: "en", tgt: "es" };
const SPANISH = { src: "es", tgt: "en" };

describe("cutting", () => {
  test("audio may be split anywhere, and comes out the same", () => {
    const random = seeded(7);
    const audio = Uint8Array.from({ length: 50_000 }, () => Math.floor(random() * 256));
    const cutter = new Cutter(SPEECH_FORMAT, [ENGLISH], 100);
    const got: number[] = [];
    for (let at = 0; at < audio.length;) {
      const size = 1 + Math.floor(random() * 5000);
      for (const piece of cutter.cut(audio.slice(at, at + size), at, 65_536)) {
        assert(piece.data.length % 2 === 0 && piece.data.length <= 3200);
        got.push(...piece.data);
      }
      at += size;
    }
    assert.deepEqual(Uint8Array.from(got), audio);
  });

  test("times never go back", () => {
    const cutter = new Cutter(SPEECH_FORMAT, [ENGLISH], 100);
    const times = [5000, 4000, 6000].flatMap((end) =>
      cutter.cut(new Uint8Array(6400), end, 65_536).map((piece) => piece.clientMs),
    );
    assert.deepEqual(times, [4900, 5000, 5000, 5000, 5900, 6000]);
  });

  test("a change of direction within a sample is refused", () => {
    const cutter = new Cutter(SPEECH_FORMAT, [ENGLISH, SPANISH], 100);
    cutter.setDirection(ENGLISH);
    cutter.cut(new Uint8Array(3), 0, 65_536);
    assert.throws(() => {
      cutter.setDirection(SPANISH);
    }, /ends within a sample: 1 of 2 bytes/);
    assert.equal(cutter.speaker, "a");
  });

  test("Opus packets stay whole", () => {
    const cutter = new Cutter({ ...SPEECH_FORMAT, encoding: "OPUS" }, [ENGLISH], 20);
    assert.equal(cutter.cut(new Uint8Array(777), 0, 65_536)[0]?.data.length, 777);
    assert.throws(() => cutter.cut(new Uint8Array(2000), 0, 1000), /at most 1000 bytes/);
  });
});

describe("kept chunks", () => {
  const chunk = (size: number): Parameters<KeptChunks["add"]>[0] => ({
    data: new Uint8Array(size),
    isFinal: false,
    speaker: "none",
    clientMs: 0,
  });

  test("acknowledged chunks stay while the server wants them kept, up to a limit", () => {
    const kept = new KeptChunks(25);
    for (let at = 0; at < 5; at += 1) {
      kept.add(chunk(10));
      kept.take();
    }
    kept.ack(2, 0);
    assert.deepEqual([kept.first, kept.bytes, kept.heldBytes], [0, 30, 20]);
    kept.ack(4, 1);
    assert.deepEqual([kept.first, kept.bytes, kept.heldBytes], [2, 10, 20]);
    kept.ack(5);
    assert.deepEqual([kept.first, kept.bytes, kept.heldBytes], [5, 0, 0]);
  });

  test("chunks that were never written are not acknowledged, whatever the server says", () => {
    const kept = new KeptChunks();
    kept.add(chunk(1));
    assert.equal(kept.ack(10), false);
    assert.equal(kept.unacknowledged, 1);
  });
});

describe("frames", () => {
  test("audio", () => {
    const data = Uint8Array.of(7, 8);
    const frame = audioFrame({
      seq: 2 ** 40 + 1,
      data,
      isFinal: true,
      speaker: "b",
      clientMs: 258,
    });
    assert.equal(
      Buffer.from(frame).toString("hex"),
      "01050000" + "0000010000000001" + "0000000000000102" + "0708",
    );
  });

  test("speech, and what this version does not know", () => {
    assert.deepEqual(speechOf(speechFrame(70_000, [9])), {
      index: 70_000,
      data: Uint8Array.of(9),
    });
    assert.equal(speechOf(new ArrayBuffer(7)), null);
    assert.equal(speechOf(new ArrayBuffer(8)), null);
  });

  test("a result with everything in it", () => {
    const [event] = eventsOf(
      JSON.stringify({
        events: [
          result(3, "hola", {
            speechFormat: {
              encoding: "AUDIO_ENCODING_PCM_S16LE",
              sampleRateHz: 22_050,
              channels: 1,
            },
            joinedUtterances: [1, 2],
            timings: { nodeMs: 5, stages: [{ stage: "STAGE_KIND_ASR", tookMs: 4 }, { stage: 77 }] },
          }),
        ],
      }),
    );
    assert(event?.kind === "outcome" && event.event.type === "result");
    assert.equal(event.event.speechFormat?.sampleRateHz, 22_050);
    assert.deepEqual(event.event.joined, [1, 2]);
    assert.deepEqual(
      event.event.timings.stages.map((each) => each.stage),
      ["ASR", "UNKNOWN_77"],
    );
  });
});

describe("the inbox", () => {
  const wired = (frame: object): PartialText | Outcome => {
    const [event] = eventsOf(JSON.stringify({ events: [frame] }));
    assert(event?.kind === "outcome" || event?.kind === "progress");
    return event.event as PartialText | Outcome;
  };

  test("an unread partial text is replaced in its place", async () => {
    const inbox = new Inbox(SESSION_SORTING);
    inbox.put(wired(partial(0, "one")));
    inbox.put(wired(result(0)));
    inbox.put(wired(partial(0, "two")));
    inbox.end();
    const read: string[] = [];
    for await (const event of inbox.events.read()) {
      read.push(event.type === "partial" ? event.texts.source : event.type);
    }
    assert.deepEqual(read, ["two", "result"]);
  });

  test("a queue that is not read keeps only the newest while the other is read", () => {
    const inbox = new Inbox(SESSION_SORTING);
    inbox.results.isRead = true;
    for (let index = 0; index < UNREAD_EVENTS + 10; index += 1) {
      assert(inbox.put(wired(result(index))));
    }
    assert.equal(inbox.events.dropped, 10);
    assert.equal(inbox.results.dropped, 0);
  });

  test("readers that wait get the error after the last event", async () => {
    const inbox = new Inbox(SESSION_SORTING);
    const reader = inbox.results.read();
    const first = reader.next();
    inbox.put(wired(result(0)));
    inbox.end(new Error("lost"));
    assert.equal((await first).value?.index, 0);
    await assert.rejects(reader.next(), /lost/);
  });
});

describe("options", () => {
  const fake = (): null => null;
  const options = (more: object): SessionOptions =>
    ({ addresses: "ws://h", languages: ENGLISH, WebSocket: fake, ...more }) as never;
  const table: [object, RegExp][] = [
    [{ languages: { src: "english!", tgt: "es" } }, /^languages.src: english! must be/],
    [{ languages: { a: "en", b: "EN" } }, /^languages.b: EN must differ from a/],
    [{ audioFormat: { ...SPEECH_FORMAT, sampleRateHz: 7999 } }, /sampleRateHz: 7999 must be/],
    [{ audioFormat: { ...SPEECH_FORMAT, channels: 3 } }, /channels: 3 must be 1 or 2/],
    [{ audioFormat: { ...SPEECH_FORMAT, encoding: "MP3" } }, /encoding: MP3 must be/],
    [
      { pauseDetection: "voice-activity", audioFormat: { ...SPEECH_FORMAT, sampleRateHz: 44_100 } },
      /^audioFormat: voice activity/,
    ],
    [{ strict: true }, /^strict: requires a preferredNodeId/],
    [{ tenant: "a b" }, /^tenant: a b must be/],
    [{ features: { x: "y".repeat(300) } }, /^features.x: key and value/],
    [{ partialIntervalMs: -1 }, /^partialIntervalMs: -1 must be/],
    [{ maxUnacknowledgedBytes: 5 }, /^maxUnacknowledgedBytes: 5 must be/],
    [{ chunkMs: NaN }, /^chunkMs: NaN must be/],
  ];
  for (const [more, message] of table) {
    test(`${JSON.stringify(more).slice(0, 60)} is refused`, () => {
      assert.throws(
        () => checkOptions(options(more)),
        (error) => {
          assert(error instanceof RangeError);
          assert.match(error.message, message);
          return true;
        },
      );
    });
  }
});

test("addresses", () => {
  assert.deepEqual(parseAddresses(["https://h:8443", "ws://[::1]:7740/x"]), [
    "wss://h:8443/v1/converse",
    "ws://[::1]:7740/x",
  ]);
  for (const bad of ["h:1", "ftp://h", "ws://h/?token=x", "ws://user:pw@h", ""]) {
    assert.throws(() => parseAddresses(bad), /^RangeError: addresses: /);
  }
  assert.throws(() => parseAddresses([]), /must name at least one/);
});

test("tokens that do not fit into a subprotocol are refused without being shown", () => {
  assert.throws(
    () => new TokenSource("Bearer secret"),
    (error) => {
      assert(error instanceof RangeError);
      assert.match(error.message, /^token: /);
      assert.doesNotMatch(error.message, /secret/);
      return true;
    },
  );
});

test("tokens that are not text are refused", () => {
  assert.throws(() => new TokenSource(5 as never), /^TypeError: token: must be text/);
});
