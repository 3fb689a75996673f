package control

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forebay-io/forebay/internal/conf"
	"github.com/forebay-io/forebay/xds"
)

// counted is a listener that counts what is written to each connection.
type counted struct {
	net.Listener
	mu    sync.Mutex
	conns []*countedConn
}

type countedConn struct {
	net.Conn
	wrote atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.wrote.Add(int64(len(b)))
	return c.Conn.Write(b)
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, &countedConn{Conn: c})
	return l.conns[len(l.conns)-1], nil
}

// follower is a gateway that notes when it takes a policy.
type follower struct {
	mu    sync.Mutex
	texts string
	at    time.Time
	takes int

	refuses string // a text that it takes in no policy
}

func (f *follower) take(files []conf.File) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, file := range files {
		if f.refuses != "" && strings.Contains(string(file.Text), f.refuses) {
			return fmt.Errorf("no %s", f.refuses)
		}
	}
	var texts strings.Builder
	for _, file := range files {
		texts.Write(file.Text)
	}
	f.texts = texts.String()
	f.at = time.Now()
	f.takes++
	return nil
}

// TestFleet: a change of one of many files reaches 500 gateways by real gRPC, each is
// sent that file alone.
func TestFleet(t *testing.T) {
	const gateways, files, changes = 500, 100, 4
	texts := map[string]string{}
	tenant := func(i, weight int) string {
		return fmt.Sprintf("admission: {tenants: [{name: tenant-%d, weight: %d}]}\n", i, weight)
	}
	for i := range files {
		texts[fmt.Sprintf("t%03d.yaml", i)] = tenant(i, 1)
	}
	p := startPlane(t, Config{}, texts)
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := &counted{Listener: raw}
	go p.Serve(ln)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	fleet := make([]*follower, gateways)
	for i := range fleet {
		fleet[i] = &follower{}
		boot := &xds.Bootstrap{Node: xds.BootstrapNode{ID: fmt.Sprint("gateway-", i)}, Servers: []xds.BootstrapServer{{URI: raw.Addr().String(), Creds: []xds.BootstrapCreds{{Type: "insecure"}}}}}
		c, err := xds.New(xds.Config{}, boot, "1", fleet[i].take, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { c.Run(ctx) })
	}
	// arrived waits until all have a text, and returns how long it took each.
	arrived := func(text string, since time.Time) (took []time.Duration) {
		t.Helper()
		for _, f := range fleet {
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
				f.mu.Lock()
				has, at := strings.Contains(f.texts, text), f.at
				f.mu.Unlock()
				if has {
					took = append(took, at.Sub(since))
					break
				}
				if time.Now().After(end) {
					t.Fatalf("a gateway has no %q after 30 s", text)
				}
			}
		}
		slices.Sort(took)
		return took
	}
	arrived(tenant(0, 1), time.Now())
	before := int64(0)
	for _, c := range ln.conns {
		before = max(before, c.wrote.Load())
	}
	for change := range changes {
		p.write("t050.yaml", tenant(50, change+2))
		since := time.Now()
		p.look()
		took := arrived(tenant(50, change+2), since)
		t.Logf("change %d: p50 %v, p99 %v", change, took[gateways/2].Round(time.Millisecond), took[gateways*99/100].Round(time.Millisecond))
	}
	most := int64(0)
	for _, c := range ln.conns {
		most = max(most, c.wrote.Load())
	}
	t.Logf("a gateway was sent %d bytes at most, %d of them at first", most, before)
	if most-before > changes*1000 || most > 1<<20 {
		t.Errorf("a gateway was sent %d bytes for %d changes of one file", most-before, changes)
	}
	for i, f := range fleet {
		if f.takes != 1+changes {
			t.Errorf("gateway %d took %d policies", i, f.takes)
		}
	}
}
