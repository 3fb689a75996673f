package control

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	grpcxds "google.golang.org/grpc/xds"
)

// backend is a gRPC server that a client may be led to.
func backend(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	healthpb.RegisterHealthServer(s, health.NewServer())
	go s.Serve(ln)
	t.Cleanup(s.Stop)
	return ln.Addr().String()
}

// TestGRPCClient: gRPC's own client of xDS is led to an endpoint by the bootstrap that
// is printed for it, and to another when the files change.
func TestGRPCClient(t *testing.T) {
	one, two := backend(t), backend(t)
	policy := func(endpoint string) string {
		return fmt.Sprintf("mesh:\n  listeners: [{name: health}]\n  routes: [{name: r, cluster: c}]\n  clusters: [{name: c, endpoints: [%q, \"unix:/run/x\"], http2: true}]\n", endpoint)
	}
	p := startPlane(t, Config{}, map[string]string{"m.yaml": policy(one)})
	b := Bootstrap{Server: strings.TrimPrefix(p.conn.Target(), "passthrough:///"), ID: "client"}
	text, err := b.For(GRPC)
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := grpcxds.NewXDSResolverWithConfigForTesting([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///health", grpc.WithResolvers(resolver), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reach := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for {
			var from peer.Peer
			_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&from), grpc.WaitForReady(true))
			if err != nil {
				t.Fatalf("%s was not reached: %v", want, err)
			}
			if from.Addr.String() == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	reach(one)
	p.write("m.yaml", policy(two))
	p.look()
	reach(two)
	page, _ := p.GetStatus(context.Background(), nil)
	if len(page.Nodes) != 1 || page.Nodes[0].Kind != string(GRPC) || len(page.Nodes[0].Types) != 4 {
		t.Fatalf("status %v", page)
	}
	for _, s := range page.Nodes[0].Types {
		if s.Nacks > 0 || s.AckedVersion == "" {
			t.Errorf("%v", s)
		}
	}
}
