/** Calls about rooms, by plain HTTP. */

import { RoomRefusedError, RoomUnavailableError } from "../errors.js";
import type { Fields } from "../protocol/json.js";
import { request } from "../session/http.js";

/** How long a gateway may take. */
const ANSWER_MS = 10_000;

export type Call = "create" | "token" | "get" | "members" | "close";

/**
 * Calls a gateway, and the next one if it is not available. Returns what `read` makes of the answer.
 *
 * Throws RoomRefusedError, or RoomUnavailableError if no gateway can answer.
 *
 * @param origins equivalent gateways.
 * @param token authenticates the caller; empty for none.
 * @param body the request in protobuf's JSON form.
 */
export async function callRoom<T>(
  origins: readonly string[],
  call: Call,
  token: string,
  body: object,
  read: (answer: Fields) => T,
): Promise<T> {
  let failure: RoomUnavailableError | null = null;
  for (const origin of origins) {
    const url = new URL(`/v1/rooms/${call}`, origin);
    const signal = AbortSignal.timeout(ANSWER_MS);
    const answer = await request(url, { token, body, signal }, read);
    switch (answer.kind) {
      case "answered":
        return answer.value;
      case "refused": {
        const { reason, message, fieldViolations } = answer.error;
        throw new RoomRefusedError(reason, message, fieldViolations);
      }
      case "unavailable": {
        const { reason, message, retryAfterMs } = answer.error;
        failure = new RoomUnavailableError(reason, message, retryAfterMs);
        break;
      }
      case "unreachable": {
        const { message, cause } = answer;
        failure ??= new RoomUnavailableError("UNREACHABLE", message, 0, { cause });
        break;
      }
    }
  }
  throw failure ?? new RangeError("url: must name at least one gateway");
}
