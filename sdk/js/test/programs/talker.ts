/**
 * A person who talks through a real scheduler, at the pace of speech, and writes down every word
 * and every event. tests/support/javascript.py starts it and reads its records.
 *
 * Words count up from 2 by 2, so what comes back can be laid beside what was said. The nodes of
 * these tests hear a word as a tenth of a second in which all samples have its value.
 */

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import { WebSocket } from "ws";

import { type Direction, Session, SessionError, type SessionEvent } from "../../src/index.js";

const WORD_MS = 100;
const WORD_SAMPLES = 1600;
/** Words of a sentence; an utterance has 15 at most in these tests, so some are cut. */
const LENGTHS = [5, 18, 8, 12, 31, 6, 9];
const PLAYBACK_MS = 50;

interface Orders {
  readonly addresses: readonly string[];
  /** One direction, or both of a conversation, in which speakers take turns. */
  readonly directions: readonly Direction[];
  /** A file with the token; empty for none. It is read at every connection. */
  readonly tokenFile: string;
  readonly partialIntervalMs: number;
  readonly features: Readonly<Record<string, string>>;
  /** Which of LENGTHS comes first. */
  readonly start: number;
}

function note(record: object): void {
  // Seconds of the machine's monotonic clock, which all its processes share.
  const t = Number(process.hrtime.bigint()) / 1e9;
  process.stdout.write(`${JSON.stringify({ t, ...record })}\n`);
}

async function main(orders: Orders): Promise<void> {
  const [first, second] = orders.directions;
  if (first === undefined) {
    throw new RangeError("directions: is empty");
  }
  const session = await Session.open({
    addresses: orders.addresses,
    languages: second === undefined ? first : { a: first.src, b: first.tgt },
    partialIntervalMs: orders.partialIntervalMs,
    features: orders.features,
    WebSocket,
    ...(orders.tokenFile === ""
      ? {}
      : { token: () => readFileSync(orders.tokenFile, "utf8").trim() }),
  });
  note({ what: "opened", session: session.sessionId });
  const hearing = hear(session);
  // If the session is lost, speaking fails too, and that is reported.
  hearing.catch(() => undefined);
  await speak(session, orders, second !== undefined);
  await session.close();
  await hearing;
  note({ what: "closed", counts: session.counts });
}

async function speak(session: Session, orders: Orders, takesTurns: boolean): Promise<void> {
  const enough = toldToStop();
  let word = 0;
  let due = performance.now();
  for (let at = orders.start; !enough(); at += 1) {
    const length = LENGTHS[at % LENGTHS.length] ?? 5;
    const direction = orders.directions[at % orders.directions.length];
    const options = takesTurns && direction !== undefined ? { direction } : {};
    for (let spoken = 0; spoken < length && !enough(); spoken += 1) {
      await sleep(due - performance.now());
      due = Math.max(due, performance.now() - 1000) + WORD_MS;
      word += 2;
      note({ what: "said", word, src: direction?.src });
      await session.send(new Int16Array(WORD_SAMPLES).fill(word), options);
    }
    await session.finish();
  }
}

async function hear(session: Session): Promise<void> {
  for await (const event of session.events()) {
    note(recordOf(event));
    if (event.type === "result" && event.kind === "TRANSLATED") {
      session.playbackStarted();
      setTimeout(() => {
        session.playbackEnded();
      }, PLAYBACK_MS);
    }
  }
}

/** An event as the robustness suite writes it down. */
function recordOf(event: SessionEvent): object {
  switch (event.type) {
    case "result":
      return {
        what: "result",
        index: event.index,
        src: event.direction.src,
        kind: event.kind,
        words: event.texts.source.split(" ").filter((each) => each !== ""),
        speech: event.speech.length,
        joined: event.joined,
        lost: event.lost,
        node: event.nodeId,
        attempts: event.attempts,
      };
    case "missing":
      return { what: "missing", index: event.index, reason: event.reason, message: event.message };
    case "finalized":
      return {
        what: "finalized",
        index: event.index,
        reason: event.reason,
        audio_ms: event.audioMs,
      };
    case "accepted":
      return { what: "accepted", index: event.index, node: event.nodeId, attempt: event.attempt };
    case "retrying":
    case "problem":
      return { ...event, what: event.type };
    case "partial":
      return { what: "partial", index: event.index };
    case "reconnecting":
      return { what: "reconnecting", why: event.why };
    case "resumed":
      return { what: "resumed", away: event.awayMs / 1000, again: event.chunksAgain };
  }
}

/** A line on stdin, or its end, is the sign to stop. */
function toldToStop(): () => boolean {
  let told = false;
  const lines = createInterface({ input: process.stdin });
  const stop = (): void => {
    told = true;
    lines.close();
  };
  lines.once("line", stop);
  lines.once("close", stop);
  return () => told;
}

async function sleep(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
}

try {
  await main(JSON.parse(process.argv[2] ?? "{}") as Orders);
} catch (error) {
  const reason = error instanceof SessionError ? error.reason : "";
  note({ what: "lost", name: (error as Error).name, reason, message: (error as Error).message });
  process.exitCode = error instanceof SessionError ? 0 : 1;
} finally {
  // An open stdin would keep the process alive.
  process.stdin.destroy();
}
