package xds

import (
	"strings"
	"testing"
)

func TestBootstrapMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":   "is not a bootstrap of xDS",
		"{}": "xds_servers: names no server",
		`{"xds_servers": [{"channel_creds": [{"type": "insecure"}]}]}`:                                                                     "xds_servers[0].server_uri: is missing",
		`{"xds_servers": [{"server_uri": "a:1"}]}`:                                                                                         "channel_creds: is missing",
		`{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "google_default"}]}]}`:                                          `has the types "google_default", and insecure and tls are known`,
		`{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}]}`:                                                "node.id: is missing",
		`{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "odd"}, {"type": "insecure"}]}], "node": {"id": "n"}, "x": {}}`: "",
	} {
		_, err := ParseBootstrap([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
