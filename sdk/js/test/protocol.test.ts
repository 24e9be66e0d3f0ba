/** The session's protocol, event by event. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";

import { SessionLostError, SessionUnavailableError } from "../src/errors.js";
import type { Effect } from "../src/protocol/effects.js";
import type { Outgoing } from "../src/protocol/stream.js";
import { closeOf, Driver, errorOf, given, givenTypes, retryOf } from "./driver.js";
import {
  ack,
  closed,
  failed,
  finalized,
  missing,
  opened,
  partial,
  result,
  speechFrame,
} from "./events.js";

function resumeIn(frame: Outgoing | undefined): object | undefined {
  const open = frame?.kind === "message" ? frame.message.open : undefined;
  return open !== undefined && "resume" in open ? open.resume : undefined;
}

describe("opening", () => {
  test("nothing but Open is written before Opened", () => {
    const driver = new Driver();
    driver.protocol.onConnected(driver.now);
    driver.send("x");
    assert.deepEqual(driver.written(), ["new"]);
    driver.say(opened());
    assert.deepEqual(driver.written(), ["audio 0"]);
    assert.equal(driver.state.sessionId, "s-1");
  });

  test("a resume says what was seen, acknowledged and kept", () => {
    const driver = new Driver();
    driver.connect();
    ["a", "b", "c"].forEach((each) => {
      driver.send(each);
    });
    driver.drain();
    driver.say(ack(2, 1), result(0));
    driver.lose();
    driver.protocol.onConnected(driver.now);
    assert.deepEqual(resumeIn(driver.drain()[0]), {
      sessionId: "s-1",
      resumeToken: "secret",
      resultsSeen: 1,
      nextSeq: 2,
      keptSeq: 1,
      tries: 1,
    });
  });

  for (const field of ["sessionId", "resumeToken"]) {
    test(`a gateway that opens a session without ${field} is left, and given up`, () => {
      const driver = new Driver();
      const { opened: whole } = opened() as { opened: Record<string, unknown> };
      const broken = { opened: { ...whole, [field]: undefined } };
      for (let at = 0; at < 4; at += 1) {
        driver.protocol.onConnected(driver.now);
        driver.drain();
        const effects = driver.say(broken);
        assert.deepEqual(givenTypes(effects), ["problem"]);
        assert.notEqual(retryOf(driver.lose(closeOf(effects).ending)), null);
      }
      driver.protocol.onConnected(driver.now);
      driver.drain();
      const error = errorOf(driver.lose(closeOf(driver.say(broken)).ending));
      assert(error instanceof SessionUnavailableError);
      assert.equal(error.reason, "BROKEN_PROMISE");
      assert.match(error.message, /without sessionId or resumeToken/);
    });
  }

  test("a gateway that asks for a dropped chunk is left", () => {
    const driver = new Driver();
    driver.connect();
    driver.send("a");
    driver.send("b");
    driver.drain();
    driver.say(ack(2));
    driver.lose();
    driver.protocol.onConnected(driver.now);
    driver.drain();
    assert.deepEqual(givenTypes(driver.say(opened(0))), ["problem"]);
  });

  test("Open that is not answered in time ends the connection", () => {
    const driver = new Driver(60_000);
    driver.protocol.onConnected(driver.now);
    driver.drain();
    assert.deepEqual(closeOf(driver.tick(10_000)).ending, {
      kind: "lost",
      why: "the gateway did not answer in time",
      silent: true,
    });
  });
});

describe("audio", () => {
  test("unacknowledged chunks are repeated after a resume, then new ones follow", () => {
    const driver = new Driver();
    driver.connect();
    driver.send("a");
    driver.send("b");
    driver.drain();
    driver.say(ack(1));
    driver.lose();
    driver.send("c");
    assert.deepEqual(driver.connect(), ["resume", "audio 1", "audio 2"]);
    assert.deepEqual(driver.state.counts.resumes, 1);
  });

  test("the end of an utterance is repeated as well", () => {
    const driver = new Driver();
    driver.connect();
    driver.send("a", true);
    driver.drain();
    driver.lose();
    assert.deepEqual(driver.connect(), ["resume", "audio 0 last"]);
  });

  test("a refused chunk is sent again without its audio, and what follows as it was", () => {
    const driver = new Driver();
    driver.connect();
    ["a", "bad", "c"].forEach((each) => {
      driver.send(each);
    });
    driver.drain();
    const refusal = failed("BAD_AUDIO", { seq: "1", expected_seq: "1" });
    assert.deepEqual(givenTypes(driver.say(refusal)), ["problem"]);
    // The gateway refuses the chunks that were in flight behind it as well.
    assert.deepEqual(driver.say(failed("BAD_AUDIO", { seq: "2", expected_seq: "1" })), []);
    const sizes = driver
      .drain()
      .map((each) => (each.kind === "audio" ? each.chunk.data.length : -1));
    assert.deepEqual(sizes, [0, 1]);
  });

  test("a chunk is sent again without audio and time whatever the reason of its refusal", () => {
    const driver = new Driver();
    driver.connect();
    const data = Uint8Array.of(1, 2);
    driver.state.kept.add({ data, isFinal: false, speaker: "none", clientMs: 2 ** 60 });
    driver.send("b");
    driver.drain();
    const refusal = failed("INVALID_MESSAGE", { seq: "0", expected_seq: "0" });
    assert.deepEqual(givenTypes(driver.say(refusal)), ["problem"]);
    const again = driver.drain().map((each) => each.kind === "audio" && each.chunk);
    assert.deepEqual(
      again.map((chunk) => chunk && [chunk.seq, chunk.data.length, chunk.clientMs]),
      [
        [0, 0, 0],
        [1, 1, 0],
      ],
    );
    // There is nothing left to change: the app is told, and nothing is sent for ever.
    assert.deepEqual(givenTypes(driver.say(refusal)), ["problem"]);
    assert.deepEqual(driver.written(), []);
    // The connection was kept, so the refusal is not why it ends later.
    assert.equal(driver.protocol.ending(driver.now, 1006, "").kind, "lost");
  });

  test("a chunk that was sent again because of a gap may be refused itself", () => {
    const driver = new Driver();
    driver.connect();
    driver.send("a");
    driver.send("b");
    driver.drain();
    driver.say(failed("BAD_AUDIO", { seq: "1", expected_seq: "0" }));
    assert.deepEqual(driver.written(), ["audio 0", "audio 1"]);
    driver.say(failed("BAD_AUDIO", { seq: "0", expected_seq: "0" }));
    const sizes = driver
      .drain()
      .map((each) => (each.kind === "audio" ? each.chunk.data.length : -1));
    assert.deepEqual(sizes, [0, 1]);
  });

  test("a chunk after a gap is sent again with its audio", () => {
    const driver = new Driver();
    driver.connect();
    driver.send("a");
    driver.send("b");
    driver.drain();
    driver.say(failed("BAD_AUDIO", { seq: "1", expected_seq: "0" }));
    const sizes = driver
      .drain()
      .map((each) => (each.kind === "audio" ? each.chunk.data.length : -1));
    assert.deepEqual(sizes, [1, 1]);
  });
});

describe("results", () => {
  test("each index is given once and in order, whatever is repeated", () => {
    const driver = new Driver();
    driver.connect();
    const effects = driver.say(result(0), missing(1), result(0), missing(1), result(2));
    assert.deepEqual(
      given(effects).map((each) => ("index" in each ? each.index : -1)),
      [0, 1, 2],
    );
    assert.equal(driver.state.counts.repeated, 2);
  });

  test("a skipped index ends the connection, so that it arrives again", () => {
    const driver = new Driver();
    driver.connect();
    const effects = driver.say(result(1));
    assert.deepEqual(givenTypes(effects), ["problem"]);
    driver.lose(closeOf(effects).ending);
    assert.deepEqual(driver.connect(), ["resume"]);
    assert.deepEqual(givenTypes(driver.say(result(0), result(1))), ["result", "result"]);
  });

  test("a server that breaks the contract again and again is given up", () => {
    const driver = new Driver();
    driver.connect();
    for (let at = 0; at < 4; at += 1) {
      driver.lose(closeOf(driver.say(result(1))).ending);
      driver.connect();
    }
    const error = errorOf(driver.lose(closeOf(driver.say(result(1))).ending));
    assert.equal(error.reason, "BROKEN_PROMISE");
  });

  test("a malformed message ends the connection with a problem that names the field", () => {
    for (const frame of [
      "",
      "[]",
      "{",
      '{"events": {}}',
      '{"events": [{"result": {"texts": 3}}]}',
    ]) {
      const driver = new Driver();
      driver.connect();
      const effects = driver.protocol.onText(driver.now, frame);
      assert.deepEqual(givenTypes(effects), ["problem"], frame);
      assert.equal(closeOf(effects).ending.kind, "lost");
    }
  });

  test("speech joins the result that follows it", () => {
    const driver = new Driver();
    driver.connect();
    driver.protocol.onBinary(speechFrame(0, [1, 2]));
    driver.protocol.onBinary(speechFrame(1, [3]));
    const speech = given(driver.say(result(0), result(1), result(2))).map((each) =>
      each.type === "result" ? [...each.speech] : null,
    );
    assert.deepEqual(speech, [[1, 2], [3], []]);
  });

  test("all results of the largest message have their speech", () => {
    const driver = new Driver();
    driver.connect();
    const indexes = [...Array(1000).keys()];
    for (const index of indexes) {
      assert.deepEqual(driver.protocol.onBinary(speechFrame(index, [index % 256])), []);
    }
    const speech = given(driver.say(...indexes.map((index) => result(index)))).map((each) =>
      each.type === "result" ? each.speech[0] : null,
    );
    assert.deepEqual(
      speech,
      indexes.map((index) => index % 256),
    );
  });

  test("speech without end and without results ends the connection", () => {
    for (const size of [0, 3 * 1024 * 1024]) {
      const driver = new Driver();
      driver.connect();
      // The same index again replaces what was there.
      for (let at = 0; at < 20; at += 1) {
        assert.deepEqual(driver.protocol.onBinary(speechFrame(0, new Uint8Array(size))), []);
      }
      let effects: Effect[] = [];
      for (let index = 1; effects.length === 0 && index < 200_000; index += 1) {
        effects = driver.protocol.onBinary(speechFrame(index, new Uint8Array(size)));
      }
      assert.deepEqual(givenTypes(effects), ["problem"]);
      assert.equal(closeOf(effects).ending.kind, "lost");
    }
  });

  test("speech of an earlier connection is not mixed with that of the next", () => {
    const driver = new Driver();
    driver.connect();
    driver.protocol.onBinary(speechFrame(0, [1]));
    driver.lose();
    driver.connect();
    driver.protocol.onBinary(speechFrame(0, [2]));
    const [event] = given(driver.say(result(0)));
    assert.deepEqual(event?.type === "result" && [...event.speech], [2]);
  });

  test("results are confirmed alone after a while", () => {
    const driver = new Driver();
    driver.connect();
    driver.say(result(0), missing(1));
    assert.deepEqual(driver.written(), []);
    driver.tick(200);
    assert.deepEqual(driver.written(), ["seen 2"]);
    assert.deepEqual(driver.written(), []);
  });

  test("results are confirmed while audio flows: it goes in frames of its own", () => {
    const driver = new Driver();
    driver.connect();
    driver.say(result(0));
    driver.send("a");
    assert.deepEqual(driver.written(), ["audio 0"]);
    driver.tick(200);
    driver.send("b");
    assert.deepEqual(driver.written(), ["seen 1", "audio 1"]);
  });

  test("events that this version does not know are ignored", () => {
    const driver = new Driver();
    driver.connect();
    const effects = driver.say({ weather: {} }, { utterance: { utteranceIndex: 0, sung: {} } });
    assert.deepEqual(effects, []);
    assert.equal(driver.state.counts.utterances, 1);
  });

  test("progress is given; a partial text of a finished utterance is not", () => {
    const driver = new Driver();
    driver.connect();
    const effects = driver.say(finalized(0), partial(0, "ho"), result(0), partial(0, "hol"));
    assert.deepEqual(givenTypes(effects), ["finalized", "partial", "result"]);
  });
});

describe("closing", () => {
  test("Close follows the last chunk, on every connection until Closed", () => {
    const driver = new Driver();
    driver.connect();
    driver.send("a");
    driver.state.closing = true;
    assert.deepEqual(driver.written(), ["audio 0", "close"]);
    driver.lose();
    assert.deepEqual(driver.connect(), ["resume", "audio 0", "close"]);
    driver.say(ack(1), result(0));
    const effects = driver.say(closed(1));
    assert(effects.some((each) => each.do === "over"));
    assert.equal(closeOf(effects).graceful, true);
    assert.deepEqual(driver.written(), ["seen 1"]);
  });

  test("a session that is gone after everything has arrived is closed, not lost", () => {
    const driver = new Driver();
    driver.connect();
    driver.send("a");
    driver.state.closing = true;
    driver.drain();
    driver.say(ack(1), result(0));
    driver.lose();
    const effects = driver.refuse("SESSION_NOT_FOUND");
    assert(effects.some((each) => each.do === "over"));
  });

  test("Closed with results that have not arrived makes the client fetch them", () => {
    const driver = new Driver();
    driver.connect();
    driver.state.closing = true;
    driver.drain();
    driver.lose(closeOf(driver.say(closed(1))).ending);
    driver.connect();
    driver.say(result(0));
    assert(driver.say(closed(1)).some((each) => each.do === "over"));
  });

  test("a server that closes first loses the session if audio is unacknowledged", () => {
    const driver = new Driver();
    driver.connect();
    driver.send("a");
    driver.drain();
    const error = errorOf(driver.say(closed()));
    assert(error instanceof SessionLostError);
    assert.deepEqual([error.reason, error.unacknowledgedBytes], ["CLOSED", 1]);
  });
});

describe("playback", () => {
  test("is said on every connection while it lasts", () => {
    const driver = new Driver();
    driver.connect();
    driver.state.playing = true;
    assert.deepEqual(driver.written(), ["playbackStarted"]);
    driver.lose();
    assert.deepEqual(driver.connect(), ["resume", "playbackStarted"]);
    driver.state.playing = false;
    assert.deepEqual(driver.written(), ["playbackEnded"]);
  });
});
