package spans

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
)

// The waits between two tries of one export, and between two connections. They are
// short, so that exports go on soon after the collector is back.
const (
	retryFirst = 200 * time.Millisecond
	retryMax   = 2 * time.Second
)

// connect makes the client of a collector without waiting for it. Call release after
// the client's Shutdown to close the connections.
func (t *target) connect(timeout time.Duration) (client sdktrace.SpanExporter, release func(), err error) {
	trust, err := t.trust()
	if err != nil {
		return nil, nil, err
	}
	if t.grpc {
		return t.connectGRPC(trust, timeout)
	}
	return t.connectHTTP(trust, timeout)
}

// trust is the configuration of TLS, nil without TLS.
func (t *target) trust() (*tls.Config, error) {
	if !t.tls {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.caFile == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(t.caFile)
	if err != nil {
		return nil, fmt.Errorf("spans.ca_file: %w", err)
	}
	if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("spans.ca_file: %s holds no PEM certificate", t.caFile)
	}
	return cfg, nil
}

// connectGRPC dials, because the SDK would read the environment for its own dialing.
func (t *target) connectGRPC(trust *tls.Config, timeout time.Duration) (sdktrace.SpanExporter, func(), error) {
	transport := insecure.NewCredentials()
	if trust != nil {
		transport = credentials.NewTLS(trust)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport), grpc.WithIdleTimeout(0), grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: retryMax},
			MinConnectTimeout: timeout,
		}),
	}
	if t.gzip {
		options = append(options, grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	}
	conn, err := grpc.NewClient(t.host, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("spans.endpoint: %w", err)
	}
	client, err := otlptracegrpc.New(context.Background(), otlptracegrpc.WithGRPCConn(conn), otlptracegrpc.WithHeaders(t.headers), otlptracegrpc.WithTimeout(timeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMax, MaxElapsedTime: timeout}))
	if err != nil {
		conn.Close()
		return nil, nil, fmt.Errorf("spans.endpoint: %w", err)
	}
	return client, func() { conn.Close() }, nil
}

func (t *target) connectHTTP(trust *tls.Config, timeout time.Duration) (sdktrace.SpanExporter, func(), error) {
	scheme, compression := "http://", otlptracehttp.NoCompression
	if t.tls {
		scheme = "https://"
	}
	if t.gzip {
		compression = otlptracehttp.GzipCompression
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = trust
	client, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(scheme+t.host+t.path), otlptracehttp.WithHeaders(t.headers),
		otlptracehttp.WithHTTPClient(&http.Client{Transport: transport, Timeout: timeout}), otlptracehttp.WithCompression(compression), otlptracehttp.WithTimeout(timeout),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMax, MaxElapsedTime: timeout}))
	if err != nil {
		return nil, nil, fmt.Errorf("spans.endpoint: %w", err)
	}
	return client, transport.CloseIdleConnections, nil
}
