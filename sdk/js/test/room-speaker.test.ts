/** A session that speaks to a room. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Room } from "../src/index.js";
import { closed, result } from "./events.js";
import { ClientSocket, peers } from "./peer.js";

test("a speaker's session opens in the room, and its results are receipts", async (context) => {
  const [peer] = await peers(context, 1);
  assert(peer);
  const room = new Room({
    url: peer.address,
    roomId: "r-1",
    token: "room.r-1.s",
    WebSocket: ClientSocket,
  });
  const opening = room.speak({ language: "en", name: "Ana" });
  const socket = await peer.sockets.next();
  assert.match(socket.request.headers["sec-websocket-protocol"] ?? "", /bearer\.room\.r-1\.s/);
  const { room: asked } = (await socket.opens()).new as Record<string, unknown>;
  assert.deepEqual(asked, {
    roomId: "r-1",
    joinToken: "room.r-1.s",
    language: "en",
    name: "Ana",
  });
  const session = await opening;
  context.after(() => {
    session.abort();
  });
  await session.send(new Int16Array(160), { isFinal: true });
  assert.equal((await socket.audio()).flags, 1);
  const why = { reason: "ERROR_REASON_JOB_TIMEOUT", message: "too late" };
  const receipt = {
    roomIndex: "12",
    delivered: ["en", "es"],
    missing: [{ language: "fr", why }],
  };
  socket.say(result(0, "", { direction: { src: "en" }, kind: undefined, room: receipt }));
  const { value } = await session.results().next();
  assert(value?.type === "result");
  assert.deepEqual(value.room, {
    roomIndex: 12,
    delivered: ["en", "es"],
    missing: [{ language: "fr", reason: "JOB_TIMEOUT", message: "too late" }],
  });
  assert.equal(value.kind, "UNSPECIFIED");
  const closing = session.close();
  socket.say({ audioAck: { nextSeq: "1" } }, closed(1));
  await closing;
});
