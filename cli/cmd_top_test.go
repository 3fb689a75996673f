package cli

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// openTerminal makes a terminal of that size: what is written to the one end is
// typed into the other.
func openTerminal(t *testing.T, width, height uint16) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("SKIPPED: no terminals here: %v", err)
	}
	t.Cleanup(func() { outside.Close() })
	fd := int(outside.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height}); err != nil {
		t.Fatal(err)
	}
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close() })
	return outside, inside
}

// TestTopOnATerminal: it draws within the screen, q ends it, and the terminal is
// as it was before.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(admin(t))
	defer server.Close()
	outside, inside := openTerminal(t, 40, 12)
	before, err := term.GetState(int(inside.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "top", "--admin", strings.TrimPrefix(server.URL, "http://"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, inside, inside
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	shown := make(chan string, 1)
	go func() {
		var all []byte
		for b := make([]byte, 4096); !strings.Contains(string(all), screenClose); {
			n, err := outside.Read(b)
			if all = append(all, b[:n]...); err != nil {
				break
			}
			if strings.Count(string(all), screenHome) == 2 { // it was drawn anew
				outside.WriteString("q")
			}
		}
		shown <- string(all)
	}()
	var text string
	select {
	case text = <-shown:
	case <-time.After(patience):
		t.Fatal("q does not end it")
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if after, err := term.GetState(int(inside.Fd())); err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %v", err)
	}
	if !strings.HasPrefix(text, screenOpen) || !strings.Contains(text, "q quits") {
		t.Errorf("%q", text)
	}
	frame := strings.Split(strings.Split(text, screenHome)[1], "\r\n")
	if len(frame) > 12 {
		t.Errorf("%d lines on a screen of 12", len(frame))
	}
	for _, line := range frame {
		if line = strings.NewReplacer(lineRest, "", screenRest, "").Replace(line); len([]rune(line)) > 40 {
			t.Errorf("too wide: %q", line)
		}
	}
}
