/** Which directions a gateway offers, and how it refuses to say. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { offeredDirections, SessionRefusedError, SessionUnavailableError } from "../src/index.js";
import { peers } from "./peer.js";

test("directions are listed, with the token in the header", async (context) => {
  const [peer] = await peers(context, 1);
  assert(peer);
  const asked: string[] = [];
  peer.serve = (request, response): boolean => {
    asked.push(`${request.url ?? ""} ${request.headers.authorization ?? ""}`);
    const directions = [{ src: "en", tgt: "es", speech: true, room: false }];
    response.end(JSON.stringify({ directions, asOfMs: "12" }));
    return true;
  };
  const offer = await offeredDirections(peer.address, { token: "t" });
  assert.deepEqual(offer, {
    directions: [{ src: "en", tgt: "es", speech: true, room: false }],
    asOfMs: 12,
  });
  assert.deepEqual(asked, ["/v1/languages Bearer t"]);
});

test("refusals have their reason, and say whether a retry may help", async (context) => {
  const [peer] = await peers(context, 1);
  assert(peer);
  const asking = (): Promise<unknown> => offeredDirections(peer.address);
  peer.refuse = () => ({ status: 401, reason: "UNAUTHENTICATED" });
  await assert.rejects(
    asking,
    (error) => error instanceof SessionRefusedError && error.reason === "UNAUTHENTICATED",
  );
  peer.refuse = () => ({ status: 503, reason: "DRAINING" });
  await assert.rejects(
    asking,
    (error) => error instanceof SessionUnavailableError && error.reason === "DRAINING",
  );
  peer.serve = (_, response): boolean => {
    response.writeHead(502);
    response.end("<h1>Bad gateway</h1>");
    return true;
  };
  await assert.rejects(
    asking,
    (error) => error instanceof SessionUnavailableError && error.reason === "UNREACHABLE",
  );
});

test("an answer that is not in the contract is no answer", async (context) => {
  const [peer] = await peers(context, 1);
  assert(peer);
  for (const answer of ["[]", "5", "{", '{"directions": 5}', '{"directions": [{"src": {}}]}']) {
    peer.serve = (_, response): boolean => {
      response.end(answer);
      return true;
    };
    await assert.rejects(
      offeredDirections(peer.address),
      (error) => error instanceof SessionUnavailableError && error.reason === "UNREACHABLE",
      answer,
    );
  }
});
