package spans

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Bounds on lists of headers and of attributes.
const (
	pairsBytesMax = 16 << 10
	pairsMax      = 64
)

type pair struct{ name, value string }

// parsePairs reads name=value,name=value with percent-encoded values, the form of the
// OTEL_ variables (a W3C Baggage string without properties). Its error shows no value,
// because a value may be secret.
func parsePairs(text string) (pairs []pair, err error) {
	if len(text) > pairsBytesMax {
		return nil, fmt.Errorf("%d bytes are more than %d", len(text), pairsBytesMax)
	}
	for item := range strings.SplitSeq(text, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue // a superfluous comma
		}
		name, value, found := strings.Cut(item, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !found || name == "" {
			return nil, fmt.Errorf("item %d is not of the form name=value; a comma in a value is written %%2C", len(pairs)+1)
		}
		if value, err = url.PathUnescape(value); err != nil || !utf8.ValidString(value) || !utf8.ValidString(name) {
			return nil, fmt.Errorf("item %d has a bad percent-encoding; a percent sign in a value is written %%25", len(pairs)+1)
		}
		if len(pairs) == pairsMax {
			return nil, fmt.Errorf("there are more than %d items", pairsMax)
		}
		pairs = append(pairs, pair{name, value})
	}
	return pairs, nil
}

// parseHeaders reads pairs that can be both HTTP headers and gRPC metadata.
func parseHeaders(text string) (map[string]string, error) {
	pairs, err := parsePairs(text)
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for i, p := range pairs {
		name := strings.ToLower(p.name)
		for _, c := range []byte(name) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
				return nil, fmt.Errorf("the name of item %d may have only letters, digits, and the characters -, _ and full stop", i+1)
			}
		}
		switch {
		case strings.HasPrefix(name, "grpc-") || name == "host" || strings.HasPrefix(name, "content-"):
			return nil, fmt.Errorf("%s is set by the protocol: leave it out", name)
		case strings.ContainsFunc(p.value, func(r rune) bool { return r < ' ' || r > '~' }):
			return nil, fmt.Errorf("the value of %s may have only printable ASCII", name)
		}
		headers[name] = p.value
	}
	return headers, nil
}
