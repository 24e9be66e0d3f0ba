// @ts-check
/** The texts of the room page in Spanish. */

/** @type {Record<keyof typeof import("./text-en.js").EN, string>} */
export const ES = {
  "room.title": "Lingua: salas",
  "room.unnamed": "Sala",
  "room.leave": "Salir",
  "room.captions": "Lo que se dice",
  "room.quiet": "Todavía nadie ha dicho nada.",
  "room.quietHost": "Invite a los demás con el código; luego mantenga pulsado el botón y hable.",
  "room.closed": "La sala se ha cerrado.",
  "room.start": "Al inicio",
  "room.again": "Entrar de nuevo",
  "room.reconnecting": "Se perdió la conexión; reconectando. No se pierde nada.",

  "start.heading": "Hablar a una sala",
  "start.intro": "Una persona habla, y cada cual lo lee o lo oye en su idioma, en su teléfono.",
  "start.make": "Crear una sala",
  "start.roomName": "Nombre de la sala",
  "start.roomNameHint": "Por ejemplo: Visita guiada, 15 h",
  "start.create": "Crear la sala",
  "start.join": "Entrar en una sala",
  "start.link": "Enlace a la sala",
  "start.follow": "Continuar",
  "start.noLink": "Esto no es un enlace a una sala. Contiene #room=… y &token=….",
  "start.talk": "Mejor hablar cara a cara",

  "me.name": "Su nombre",
  "me.nameHint": "Opcional. Los demás lo ven.",
  "me.speaks": "Usted habla",
  "me.listens": "Su idioma",

  "lobby.heading": "Entrar en {room}",
  "lobby.speakers": "Habla: {names}",
  "lobby.nobody": "Todavía no habla nadie.",
  "lobby.listen": "Escuchar",
  "lobby.speak": "Hablar",
  "lobby.entering": "Un momento…",

  "refusal.heading": "No puede entrar en esta sala",
  "refusal.NO_TOKEN":
    "El enlace está incompleto. Pida el enlace entero a quien le invitó, o escanee el código otra vez.",
  "refusal.UNAUTHENTICATED":
    "El enlace no es válido o ha caducado. Pida uno nuevo a quien le invitó.",
  "refusal.PERMISSION_DENIED":
    "El enlace no es válido para esto o ha caducado. Pida uno nuevo a quien le invitó.",
  "refusal.ROOM_NOT_FOUND":
    "Esta sala no existe; puede que haya terminado. Pida un enlace nuevo a quien le invitó.",
  "refusal.ROOM_CLOSED": "Esta sala se ha cerrado. Ya no se puede entrar.",
  "refusal.OTHER": "Algo ha fallado. Pida un enlace nuevo a quien le invitó.",

  "sound.on": "Con sonido",
  "sound.off": "Sin sonido",
  "sound.label": "Oírlo en voz alta",

  "panel.name": "Invitar, y quién está",
  "panel.open": "Invitar y personas",
  "panel.close": "Listo",
  "invite.heading": "Invitar a escuchar",
  "invite.code": "Código QR del enlace para escuchar",
  "invite.listener": "Enlace para escuchar",
  "invite.speaker": "Enlace para otros que hablan",
  "invite.copy": "Copiar",
  "invite.copied": "Copiado",
  "invite.making": "Creando el enlace…",
  "invite.local":
    "Esta dirección solo funciona en este equipo. Para invitar a otros, abra la página por su dirección en la red.",
  "people.heading": "Quién está",
  "people.none": "Todavía no escucha nadie.",
  "people.listeners": "{count} escuchando",
  "people.withSound": "{count} con sonido",
  "people.waiting": "{count} en espera",
  "people.speakers": "Quién habla",
  "people.unnamed": "Sin nombre",
  "people.you": "usted",
  "close.button": "Cerrar la sala",
  "close.question": "¿Cerrar la sala para todos?",
  "close.explain": "Todos se desconectan, y nadie puede volver a entrar.",
  "close.confirm": "Cerrarla",
  "close.cancel": "Dejarla abierta",

  "line.you": "Usted",
  "line.delivered": "Entregado: {languages}",
  "line.notIn": "No en {language}: {why}",
  "line.nobody": "No escuchaba nadie.",
  "line.several": "Faltan {count} frases: {why}",
  "line.OUT_OF_ORDER": "no llegaron.",
  "line.LISTENING_CHANGED": "se perdió la conexión mientras cambiaba el idioma.",
  "line.NOT_KEPT": "ya no se conservan.",
};
