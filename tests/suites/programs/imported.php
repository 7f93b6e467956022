<?php
// Echoes the received bytes until the end of each stream, on a listener that PHP imports.
$context = stream_context_create(["socket" => ["backlog" => 128]]);
$flags = STREAM_SERVER_BIND | STREAM_SERVER_LISTEN;
$stream = stream_socket_server("tcp://$argv[1]:$argv[2]", $error, $text, $flags, $context);
$listener = socket_import_stream($stream);
while ($peer = socket_accept($listener)) {
    while (($bytes = socket_read($peer, 65536)) !== false && $bytes !== "") {
        while ($bytes !== "") {
            $bytes = substr($bytes, socket_write($peer, $bytes));
        }
    }
    socket_shutdown($peer, 1);
    socket_close($peer);
}
