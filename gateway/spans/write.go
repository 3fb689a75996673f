package spans

import (
	"context"
	"io"
	"net/http"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
)

// WriteOTLP writes trees to w as OTLP JSON: an ExportTraceServiceRequest, which every
// collector and trace viewer with OTLP reads, with version and instance in the
// resource.
func WriteOTLP(w io.Writer, version, instance string, names Names, trees ...Tree) error {
	m := newMaker(&target{}, version, instance, names.schemaURL())
	offset := anchor()
	for i := range trees {
		m.tree(&trees[i], offset)
	}
	client, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL("http://file"+tracesPath), otlptracehttp.WithEncoding(otlptracehttp.EncodingJSON),
		otlptracehttp.WithCompression(otlptracehttp.NoCompression), otlptracehttp.WithHeaders(map[string]string{}), otlptracehttp.WithHTTPClient(&http.Client{Transport: intoWriter{w}}))
	if err != nil {
		return err
	}
	return client.ExportSpans(context.Background(), m.made)
}

// intoWriter is a transport that writes requests to w. Sending is the only way to let
// the SDK encode spans.
type intoWriter struct{ w io.Writer }

// RoundTrip implements http.RoundTripper.
func (t intoWriter) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	if _, err := io.Copy(t.w, r.Body); err != nil {
		return nil, err
	}
	return &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Proto: r.Proto, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}
