/** The layout of binary frames to listeners (docs/web.md). No I/O. */

const HEADER_BYTES = 12;
const KINDS = new Map([
  [3, "speech"],
  [4, "original"],
] as const);

/** Audio of the result with this room index. */
export interface RoomAudio {
  readonly kind: "speech" | "original";
  readonly roomIndex: number;
  readonly data: Uint8Array;
}

/** Returns the audio in a frame of the gateway; null if this version does not know the frame. */
export function roomAudioOf(frame: ArrayBuffer): RoomAudio | null {
  if (frame.byteLength < HEADER_BYTES) {
    return null;
  }
  const view = new DataView(frame);
  const isPadded = (view.getUint32(0) & 0xffffff) === 0;
  const kind = isPadded ? KINDS.get(view.getUint8(0) as 3 | 4) : undefined;
  const roomIndex = Number(view.getBigUint64(4));
  return kind === undefined || !Number.isSafeInteger(roomIndex)
    ? null
    : { kind, roomIndex, data: new Uint8Array(frame, HEADER_BYTES) };
}
