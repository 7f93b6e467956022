import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/** Returns what it receives, with a thread for each connection. */
class Echo {
    public static void main(String[] arguments) throws Exception {
        InetAddress here = InetAddress.getByName("127.0.0.1");
        ServerSocket server = new ServerSocket(Integer.parseInt(arguments[0]), 64, here);
        while (true) {
            Socket peer = server.accept();
            new Thread(() -> echo(peer)).start();
        }
    }

    private static void echo(Socket peer) {
        try (peer) {
            peer.getInputStream().transferTo(peer.getOutputStream());
            peer.shutdownOutput();
        } catch (Exception error) {
            error.printStackTrace();
        }
    }
}
