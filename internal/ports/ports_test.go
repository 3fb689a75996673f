package ports

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	if n, _ := strconv.Atoi(os.Getenv("PORTS_OF_A_CHILD")); n > 0 {
		free, err := Free(n)
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strings.Join(free, " ") + "\n")
		bufio.NewReader(os.Stdin).ReadString('\n') // the ports are held while the parent lives
		return
	}
	os.Exit(m.Run())
}

// TestFree: no two calls in any process return the same port, each port can be bound
// again and again, and a port that a stranger listens on is left out.
func TestFree(t *testing.T) {
	const each = 250
	seen := map[string]bool{}
	take := func(ports []string) {
		t.Helper()
		if len(ports) != each {
			t.Fatalf("%d ports", len(ports))
		}
		for _, port := range ports {
			if n, err := strconv.Atoi(port); seen[port] || err != nil || n < first || n >= end {
				t.Errorf("port %q, seen %v", port, seen[port])
			}
			seen[port] = true
		}
	}
	for range 3 { // without claims at least one port would come twice, but for a chance of 10^-16
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), "PORTS_OF_A_CHILD="+strconv.Itoa(each))
		in, _ := child.StdinPipe()
		out, _ := child.StdoutPipe()
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { in.Close(); child.Wait() }()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		take(strings.Fields(line))
	}
	ours, err := Free(each)
	if err != nil {
		t.Fatal(err)
	}
	take(ours)
	for range 2 {
		ln, err := net.Listen("tcp", "127.0.0.1:"+ours[0])
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
	}
	if free, err := Free(end - first); err == nil || len(free) > 0 {
		t.Errorf("more ports than there are: %d, %v", len(free), err)
	}
}

// TestStrangers: a port is left out where a server listens that knows nothing of claims.
func TestStrangers(t *testing.T) {
	strangers := map[string]bool{}
	for n := range 100 {
		port := strconv.Itoa(first + n*(end-first)/100)
		ln, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		defer ln.Close()
		strangers[port] = true
	}
	free, err := Free(400)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range free {
		if strangers[port] {
			t.Errorf("port %s is a stranger's", port)
		}
	}
}
