package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pathBytesMax is the longest path of a Unix socket: sun_path holds 108
// bytes with the final zero (unix(7)).
const pathBytesMax = 107

// checkPath refuses a path that the kernel would refuse, and says why.
func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("the socket path is empty")
	case len(path) > pathBytesMax:
		return fmt.Errorf("socket path %s is too long: %d bytes, and a Unix socket allows %d; choose a shorter directory", path, len(path), pathBytesMax)
	case path[0] == '@':
		return fmt.Errorf("socket path %s would be an abstract socket, which file permissions do not protect; give a file path", path)
	}
	return nil
}

// Listen binds a Unix socket at path that only this user may connect to. It
// replaces a socket that a dead process has left. It fails where a process
// answers at the socket, or where path is something else than a socket. A
// missing directory is made for this user alone, so that it may lie on a volume
// that everybody may write to. Closing the listener removes the socket.
func Listen(path string) (net.Listener, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("socket directory: %w", err)
	}
	if err := checkDirectory(dir); err != nil {
		return nil, err
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	return bind(path)
}

// lockLimit is longer than any Listen holds the lock.
const lockLimit = 3 * time.Second

// lockDirectory locks dir, so that of two engines that start together neither
// removes the other's new socket as stale.
func lockDirectory(dir string) (unlock func(), _ error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("socket directory: %w", err)
	}
	for deadline := time.Now().Add(lockLimit); ; time.Sleep(10 * time.Millisecond) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, fmt.Errorf("lock socket directory %s: %w", dir, err)
		case time.Now().After(deadline):
			f.Close()
			return nil, fmt.Errorf("socket directory %s is locked by another process: choose a directory that only engines use", dir)
		}
	}
}

// bind makes the socket, with mode 0600 from the start: bind(2) gives the file
// the mode of the descriptor, less the umask.
func bind(path string) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmod error
		if err := c.Control(func(fd uintptr) { chmod = unix.Fchmod(int(fd), 0o600) }); err != nil {
			return err
		}
		return chmod
	}}
	ln, err := lc.Listen(context.Background(), "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("another engine is serving %s, or has just taken it; stop it or choose another path", path)
	}
	if err != nil {
		return nil, fmt.Errorf("bind socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		ln.Close()
		return nil, fmt.Errorf("bind socket %s: %w", path, err)
	}
	return ln, nil
}

// checkDirectory refuses a directory in which another user could replace the
// socket.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("socket directory %s does not exist: create it with mode 0700", dir)
	case err != nil:
		return fmt.Errorf("socket directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("socket directory %s is not a directory", dir)
	}
	if mode := info.Mode(); mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("socket directory %s has mode %#o, so any user may replace the socket: run chmod o-w on it, or make a directory of mode 0700 in it", dir, mode.Perm())
	}
	return nil
}

// removeStale removes a socket whose engine is dead.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("socket path: %w", err)
	}
	if err := checkSocket(path, info); err != nil {
		return err
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		conn.Close()
		return fmt.Errorf("another engine is serving %s; stop it or choose another path", path)
	case errors.Is(err, syscall.ECONNREFUSED):
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.EAGAIN), os.IsTimeout(err):
		return fmt.Errorf("another engine is serving %s and is busy; stop it or choose another path", path)
	default:
		return fmt.Errorf("socket path %s cannot be tried: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the socket of a dead engine: %w", err)
	}
	return nil
}

func checkSocket(path string, info fs.FileInfo) error {
	if info.Mode().Type() == fs.ModeSocket {
		return nil
	}
	kind := "a file"
	switch info.Mode().Type() {
	case fs.ModeDir:
		kind = "a directory"
	case fs.ModeSymlink:
		kind = "a symbolic link"
	}
	return fmt.Errorf("socket path %s is %s, not a socket, and is left as it is: remove it or choose another path", path, kind)
}

// dialPath connects to an engine's socket, with the checks of Listen.
func dialPath(ctx context.Context, path string) (net.Conn, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no engine is serving %s", path)
	}
	if err != nil {
		return nil, fmt.Errorf("socket path: %w", err)
	}
	if err := checkSocket(path, info); err != nil {
		return nil, err
	}
	if err := checkDirectory(filepath.Dir(path)); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("the engine at %s is dead: its socket refuses connections", path)
	case err != nil:
		return nil, fmt.Errorf("connect to the engine: %w", err)
	}
	return conn, nil
}
