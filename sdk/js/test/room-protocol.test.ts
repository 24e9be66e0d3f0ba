/** The listener's protocol, event by event. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { ListenerLostError, RoomRefusedError, RoomUnavailableError } from "../src/errors.js";
import type { Heard, RoomEvent } from "../src/index.js";
import type { Effect } from "../src/protocol/effects.js";
import { roomAudioOf } from "../src/room/protocol/frames.js";
import { closeOf, errorOf, given, givenTypes, retryOf } from "./driver.js";
import { failed, goAway } from "./events.js";
import { FRENCH, inShort, ListenerDriver, SPANISH } from "./room-driver.js";
import {
  changed,
  joined,
  notSaid,
  roomAudioFrame,
  roomClosed,
  said,
  status,
} from "./room-events.js";

function heard(effects: readonly Effect<RoomEvent>[]): string[] {
  return given(effects)
    .filter((event): event is Heard => event.type === "said" || event.type === "not-said")
    .map(inShort);
}

describe("joining", () => {
  test("a new member names no position, and one that comes back does", () => {
    const driver = new ListenerDriver();
    assert.deepEqual(driver.connect(7), {
      roomId: "r-1",
      joinToken: "room.secret",
      name: "Ben",
      status: true,
      listening: SPANISH,
    });
    assert.equal(driver.state.room?.name, "Lecture");
    driver.say(said(7, 6));
    assert.deepEqual(givenTypes(driver.lose()), ["reconnecting"]);
    const again = driver.connect(9);
    assert.deepEqual([again.memberId, again.position], ["m-1", 8]);
    assert.equal(driver.state.rejoins, 1);
  });

  test("a member that has heard nothing comes back at the first live utterance", () => {
    const driver = new ListenerDriver();
    driver.connect(7);
    driver.lose();
    assert.equal(driver.connect(9).position, 7);
  });

  test("it says how long it was away, and where it goes on", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.say(said(0, null));
    driver.lose();
    driver.now += 1500;
    driver.protocol.onConnected(driver.now);
    driver.drain();
    assert.deepEqual(given(driver.say(joined(3))), [
      { type: "rejoined", awayMs: 1500, position: 1 },
    ]);
  });

  test("a gateway that lets it in without a member id is left", () => {
    const driver = new ListenerDriver();
    driver.protocol.onConnected(driver.now);
    driver.drain();
    const effects = driver.say(joined(0, { memberId: "" }));
    assert.deepEqual(givenTypes(effects), ["problem"]);
    assert.notEqual(retryOf(driver.lose(closeOf(effects).ending)), null);
  });

  for (const reason of ["ROOM_NOT_FOUND", "ROOM_CLOSED", "ROOM_FULL", "PERMISSION_DENIED"]) {
    test(`${reason} is final for a new member`, () => {
      const error = errorOf(new ListenerDriver().refuse(reason));
      assert(error instanceof RoomRefusedError);
      assert.equal(error.reason, reason);
    });
  }

  test("a member may find a place in a full room again", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.lose();
    assert.notEqual(retryOf(driver.refuse("ROOM_FULL")), null);
    const error = errorOf(driver.refuse("ROOM_NOT_FOUND"));
    assert(error instanceof ListenerLostError);
    assert.equal(error.position, 0);
  });

  test("it gives up after 10 s at first, and after 5 minutes later", () => {
    const first = new ListenerDriver();
    first.protocol.onConnecting(first.now);
    assert.notEqual(retryOf(first.lose()), null);
    first.now += 10_000;
    assert(errorOf(first.lose()) instanceof RoomUnavailableError);
    const later = new ListenerDriver();
    later.connect();
    later.say(said(0, null));
    later.lose();
    later.now += 299_000;
    assert.notEqual(retryOf(later.lose()), null);
    later.now += 1000;
    assert.equal(errorOf(later.lose()).reason, "UNREACHABLE");
  });
});

describe("what is said", () => {
  test("results come with their audio, in order and once", () => {
    const driver = new ListenerDriver();
    driver.connect(2);
    driver.protocol.onBinary(roomAudioFrame(3, 2, [1, 2]));
    driver.protocol.onBinary(roomAudioFrame(4, 2, [3, 4]));
    const format = {
      encoding: "AUDIO_ENCODING_PCM_S16LE",
      sampleRateHz: 16_000,
      channels: 1,
    };
    const [result] = given(
      driver.say(said(2, null, { speechFormat: format, originalFormat: format })),
    );
    assert(result?.type === "said");
    assert.deepEqual(
      [[...result.speech], [...result.originalAudio]],
      [
        [1, 2],
        [3, 4],
      ],
    );
    assert.equal(result.speechFormat?.sampleRateHz, 16_000);
    assert.equal(result.text, "hola");
    assert.deepEqual(heard(driver.say(said(2, null), said(4, 2), notSaid(5, 4))), [
      "4",
      "missing 5",
    ]);
    assert.deepEqual(driver.state.counts, { said: 2, notSaid: 1, repeated: 1, rejoins: 0 });
  });

  test("the caption of the speaker's own language is what was recognised", () => {
    const driver = new ListenerDriver();
    driver.connect();
    const texts = { source: "helo", repaired: "hello" };
    const own = { language: "en", spokenLanguage: "EN", texts };
    const [first, second] = given(
      driver.say(said(0, null, own), said(1, 0, { texts: { source: "hello" } })),
    );
    assert(first?.type === "said" && second?.type === "said");
    assert.deepEqual([first.text, second.text], ["hello", ""]);
  });

  test("what was said before it came is replayed, whatever came before that", () => {
    const driver = new ListenerDriver();
    driver.connect(10);
    const replayed = { replayed: true };
    const effects = driver.say(said(6, 5, replayed), said(8, 6, replayed), said(12, 8));
    assert.deepEqual(heard(effects), ["6", "8", "12"]);
  });

  test("several that are no longer kept are one report, cut to what is new", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.say(said(0, null));
    assert.deepEqual(heard(driver.say(notSaid(0, null, { untilIndex: "5" }), said(5, 4))), [
      "missing 1-4",
      "5",
    ]);
    assert.equal(driver.state.counts.notSaid, 4);
  });

  test("a broken chain is reported, and another connection is asked for what is missing", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.say(said(0, null));
    const effects = driver.say(said(3, 2));
    const [problem] = given(effects);
    assert(problem?.type === "problem");
    assert.equal(problem.reason, "OUT_OF_ORDER");
    assert.match(problem.message, /skipped utterances 1 to 2/);
    assert.notEqual(retryOf(driver.lose(closeOf(effects).ending)), null);
    assert.equal(driver.connect(4).position, 1);
    assert.deepEqual(heard(driver.say(said(2, 0), said(3, 2))), ["2", "3"]);
  });

  test("what is skipped twice is reported as not said, and the rest goes on", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.say(said(0, null));
    driver.lose(closeOf(driver.say(said(3, 2))).ending);
    driver.connect(4);
    const effects = driver.say(said(3, 2), said(4, 3));
    assert.deepEqual(heard(effects), ["missing 1-2", "3", "4"]);
    const [report] = given(effects);
    assert(report?.type === "not-said");
    assert.equal(report.reason, "OUT_OF_ORDER");
  });

  test("a gateway that sends indexes that cannot be is left", () => {
    for (const wrong of [said(3, 3), said(3, 9), said(2 ** 53 - 1, null)]) {
      const driver = new ListenerDriver();
      driver.connect();
      assert.deepEqual(givenTypes(driver.say(wrong)), ["problem"]);
    }
  });

  test("audio without results is limited", () => {
    const driver = new ListenerDriver();
    driver.connect();
    const frame = roomAudioFrame(3, 0, new Uint8Array(1024 * 1024));
    const effects = Array.from({ length: 17 }, (_, at) => {
      new DataView(frame).setBigUint64(4, BigInt(at));
      return driver.protocol.onBinary(frame);
    });
    assert.deepEqual(givenTypes(effects.flat()), ["problem"]);
  });
});

describe("changing", () => {
  test("a change is asked for once, and confirmed", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.state.change(FRENCH);
    assert.deepEqual(driver.drain(), [{ change: { listening: FRENCH } }]);
    assert.deepEqual(driver.drain(), []);
    assert(!driver.state.isSettled);
    assert.deepEqual(givenTypes(driver.say(changed("fr", 3))), ["changed"]);
    assert(driver.state.isSettled);
    assert.deepEqual(driver.state.confirmed, FRENCH);
  });

  test("the old language comes to its end, and the new one begins at its position", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.say(said(0, null));
    driver.state.change(FRENCH);
    driver.drain();
    const effects = driver.say(
      changed("fr", 4),
      said(1, 0),
      said(3, 1),
      // The new language had utterances that this listener was not to get.
      said(4, 2, { language: "fr" }),
    );
    assert.deepEqual(heard(effects), ["1", "3", "4"]);
  });

  test("what is skipped after the change is noticed", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.state.change(FRENCH);
    driver.drain();
    const effects = driver.say(changed("fr", 4), said(7, 5, { language: "fr" }));
    assert.match(closeOf(effects).ending.kind, /lost/);
  });

  test("a refused change leaves everything as it was", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.state.change(FRENCH);
    driver.drain();
    assert.deepEqual(givenTypes(driver.say(failed("ROOM_FULL"))), ["problem"]);
    assert.deepEqual(driver.state.wanted, SPANISH);
    assert.equal(driver.state.changeError?.reason, "ROOM_FULL");
    assert.deepEqual(driver.drain(), []);
    // The connection ends later, for another reason.
    assert.deepEqual(driver.protocol.ending(driver.now, 1006, "").kind, "lost");
  });

  test("a change that a broken connection has swallowed is asked for again", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.say(said(0, null));
    driver.state.change(FRENCH);
    driver.drain();
    driver.lose();
    assert.deepEqual(driver.connect(5).listening, SPANISH);
    assert.deepEqual(driver.drain(), [{ change: { listening: FRENCH } }]);
    // It cannot know in which language utterances 1 to 4 were published.
    const effects = driver.say(changed("fr", 5), said(5, null, { language: "fr" }));
    assert.deepEqual(heard(effects), ["missing 1-4", "5"]);
  });
});

describe("the end", () => {
  test("leaving is said, and ends everything", () => {
    const driver = new ListenerDriver();
    driver.connect();
    const effects = driver.protocol.leave();
    assert.deepEqual(closeOf(effects), { do: "close", ending: { kind: "left" }, graceful: true });
    assert(effects.some((effect) => effect.do === "over"));
    assert.deepEqual(driver.drain(), [{ leave: {} }]);
    assert.deepEqual(driver.lose({ kind: "left" }), []);
  });

  test("a closed room is the last event", () => {
    const driver = new ListenerDriver();
    driver.connect();
    const effects = driver.say(said(0, null), roomClosed(), said(1, 0));
    assert.deepEqual(
      effects.map((effect) => (effect.do === "give" ? effect.event.type : effect.do)),
      ["said", "closed", "over", "close"],
    );
    assert(driver.state.isRoomClosed);
  });

  test("a room that was closed meanwhile is closed, not lost", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.lose();
    const effects = driver.refuse("ROOM_CLOSED");
    assert.deepEqual(
      effects.map((effect) => (effect.do === "give" ? effect.event.type : effect.do)),
      ["closed", "over"],
    );
  });

  test("a gateway that goes away is left at its time", () => {
    const driver = new ListenerDriver();
    driver.connect();
    driver.say(goAway(500));
    assert.deepEqual(driver.tick(499), []);
    assert.equal(closeOf(driver.tick(1)).ending.kind, "moved");
  });

  test("a silent gateway is left, without being asked anything", () => {
    const driver = new ListenerDriver();
    driver.connect(0, { silenceMs: 3000 });
    const effects: Effect<RoomEvent>[] = [];
    for (let at = 0; at < 6; at += 1) {
      effects.push(...driver.tick(500));
      assert.deepEqual(driver.drain(), []);
    }
    assert.deepEqual(closeOf(effects).ending, {
      kind: "lost",
      why: "the gateway sent nothing for 3000 ms",
      silent: true,
    });
  });

  test("signs of life keep a connection", () => {
    const driver = new ListenerDriver();
    driver.connect(0, { silenceMs: 3000 });
    for (let at = 0; at < 30; at += 1) {
      assert.deepEqual(driver.tick(500), []);
      driver.protocol.onText(driver.now, "{}");
    }
  });
});

test("who is there is told", () => {
  const driver = new ListenerDriver();
  driver.connect();
  const [event] = given(driver.say(status(4)));
  assert(event?.type === "status");
  assert.equal(event.listeners, 4);
  assert.deepEqual(event.languages[0], {
    language: "es",
    listeners: 4,
    speechListeners: 1,
    waiting: 0,
    oldestWaitingMs: 0,
  });
  assert.deepEqual(event.speakers[0], {
    sessionId: "s-1",
    name: "Ana",
    language: "en",
    joinedMs: 1000,
  });
});

test("frames that this version does not know are ignored", () => {
  for (const [kind, padding, length] of [
    [2, 0, 12],
    [5, 0, 12],
    [3, 1, 12],
    [3, 0, 11],
  ] as const) {
    const frame = new Uint8Array(length);
    frame[0] = kind;
    frame[2] = padding;
    assert.equal(roomAudioOf(frame.buffer), null);
  }
  const tooHigh = new Uint8Array(12).fill(255);
  tooHigh.set([3, 0, 0, 0]);
  assert.equal(roomAudioOf(tooHigh.buffer), null);
});

test("a malformed message ends the connection, not the listener", () => {
  for (const frame of ["x", "[]", '{"events":1}', '{"events":[{"result":{"roomIndex":-1}}]}']) {
    const driver = new ListenerDriver();
    driver.connect();
    const effects = driver.protocol.onText(driver.now, frame);
    assert.deepEqual(givenTypes(effects), ["problem"]);
    assert.notEqual(retryOf(driver.lose(closeOf(effects).ending)), null);
  }
});
