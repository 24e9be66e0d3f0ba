/** Drives a listener's protocol with a clock, in the place of a gateway. */

import type { Heard, Listening, RoomEvent } from "../src/index.js";
import { ListenerProtocol } from "../src/room/protocol/machine.js";
import type { JoinRoom, ListenerMessage } from "../src/room/protocol/stream.js";
import { ProtocolDriver, seeded } from "./driver.js";
import { joined } from "./room-events.js";

export const SPANISH: Listening = {
  language: "es",
  captions: true,
  speech: false,
  originalAudio: false,
};
export const FRENCH: Listening = { ...SPANISH, language: "fr" };
const JOINING = { roomId: "r-1", joinToken: "room.secret", name: "Ben", status: true };

export function listenerProtocol(reconnectMs: number | null = null): ListenerProtocol {
  return new ListenerProtocol({
    joining: JOINING,
    listening: SPANISH,
    random: seeded(1),
    reconnectMs,
  });
}

/** A listener's protocol with a clock. The test plays the gateway. */
export class ListenerDriver extends ProtocolDriver<RoomEvent, ListenerMessage, ListenerProtocol> {
  constructor(reconnectMs: number | null = null) {
    super(listenerProtocol(reconnectMs));
  }

  /** Opens a connection and joins. Returns what the listener asked for. */
  connect(position = 0, more: Record<string, unknown> = {}): JoinRoom {
    this.protocol.onConnected(this.now);
    const [first] = this.drain();
    if (first === undefined || !("join" in first)) {
      throw new Error(`JoinRoom comes first, not ${JSON.stringify(first)}`);
    }
    this.say(joined(position, more));
    return first.join;
  }
}

/** Such as "3", "missing 4" and "missing 5-7". */
export function inShort(heard: Heard): string {
  if (heard.type === "said") {
    return String(heard.roomIndex);
  }
  const { roomIndex, untilIndex } = heard;
  return `missing ${roomIndex}${untilIndex > roomIndex + 1 ? `-${untilIndex - 1}` : ""}`;
}
