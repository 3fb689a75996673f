package sockets

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// pair is both ends of a connection, one of them direct.
func pair(t *testing.T, network, address string) (ours, theirs net.Conn) {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if ours, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return Direct(ours), theirs
}

func each(t *testing.T, test func(t *testing.T, ours, theirs net.Conn)) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			ours, theirs := pair(t, network, address)
			test(t, ours, theirs)
		})
	}
}

// Writes and reads of more than the socket's buffers hold wait for the other side.
func TestBothDirectionsWait(t *testing.T) {
	each(t, func(t *testing.T, ours, theirs net.Conn) {
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
		go io.Copy(theirs, theirs) // an echo
		written := make(chan error, 1)
		go func() {
			n, err := ours.Write(sent)
			if n != len(sent) {
				t.Errorf("%d of %d bytes written", n, len(sent))
			}
			written <- err
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(ours, got); err != nil || !bytes.Equal(got, sent) {
			t.Error("what came back differs", err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	})
}

func TestEndsAndErrorsAreThoseOfAnyConnection(t *testing.T) {
	each(t, func(t *testing.T, ours, theirs net.Conn) {
		b := make([]byte, 10)
		ours.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := ours.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the deadline: %v", err)
		}
		ours.SetReadDeadline(time.Time{})
		if n, err := ours.Read(nil); n != 0 || err != nil {
			t.Errorf("a read of nothing: %d, %v", n, err)
		}
		theirs.Write([]byte("last"))
		theirs.Close()
		if all, err := io.ReadAll(ours); string(all) != "last" || err != nil {
			t.Errorf("%q, %v", all, err)
		}
		err := error(nil)
		for range 100 { // the first may reach a kernel that does not know yet
			if _, err = ours.Write(b); err != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		var of *net.OpError
		if !errors.As(err, &of) || of.Op != "write" || !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a write to nobody: %v", err)
		}
	})
}

func TestCloseEndsARead(t *testing.T) {
	each(t, func(t *testing.T, ours, _ net.Conn) {
		ended := make(chan error)
		go func() {
			_, err := ours.Read(make([]byte, 1))
			ended <- err
		}()
		ours.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

// WriteNow takes what there is room for, and Write goes on from there.
func TestWriteNowDoesNotWait(t *testing.T) {
	each(t, func(t *testing.T, ours, theirs net.Conn) {
		now, ok := ours.(interface{ WriteNow([]byte) int })
		if !ok {
			t.Skip("not here, or with the race detector")
		}
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
		written := 0
		for {
			n := now.WriteNow(sent[written:])
			if n == 0 {
				break
			}
			written += n
		}
		if written == 0 || written == len(sent) {
			t.Fatalf("%d of %d bytes fit into the socket", written, len(sent))
		}
		go ours.Write(sent[written:])
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(theirs, got); err != nil || !bytes.Equal(got, sent) {
			t.Error("what came differs", err)
		}
		theirs.Close()
		ours.Close()
		if n := now.WriteNow([]byte("x")); n != 0 {
			t.Errorf("%d bytes written to a closed connection", n)
		}
	})
}

func TestTransfersAllocateNothing(t *testing.T) {
	each(t, func(t *testing.T, ours, theirs net.Conn) {
		go io.Copy(theirs, theirs)
		b := make([]byte, 64)
		if n := testing.AllocsPerRun(100, func() {
			ours.Write(b)
			io.ReadFull(ours, b)
		}); n >= 1 {
			t.Errorf("%v allocations", n)
		}
	})
}

// tlsLike offers its socket, and is no socket.
type tlsLike struct{ *net.TCPConn }

func TestOnlySocketsAreDirect(t *testing.T) {
	_, theirs := pair(t, "tcp", "127.0.0.1:0")
	over := &tlsLike{theirs.(*net.TCPConn)}
	if c := Direct(over); c != net.Conn(over) {
		t.Errorf("%T is read past what encrypts it", c)
	}
}
