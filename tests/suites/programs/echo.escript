#!/usr/bin/env escript
%% Returns what it receives, with a process for each connection.
main([Port]) ->
    Options = [binary, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 64},
               {reuseaddr, true}, {exit_on_close, false}],
    {ok, Listener} = gen_tcp:listen(list_to_integer(Port), Options),
    accept(Listener).

accept(Listener) ->
    {ok, Peer} = gen_tcp:accept(Listener),
    Process = spawn(fun() -> receive go -> echo(Peer) end end),
    ok = gen_tcp:controlling_process(Peer, Process),
    Process ! go,
    accept(Listener).

echo(Peer) ->
    case gen_tcp:recv(Peer, 0) of
        {ok, Bytes} -> ok = gen_tcp:send(Peer, Bytes), echo(Peer);
        {error, closed} -> gen_tcp:close(Peer)
    end.
