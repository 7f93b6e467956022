// Returns what it receives, with a goroutine for each connection.
package main

import (
	"io"
	"log"
	"net"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	for {
		peer, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			io.Copy(peer, peer)
			peer.Close()
		}()
	}
}
