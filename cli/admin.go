package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// adminClient sends the commands' requests to the admin address.
var adminClient = http.Client{Timeout: 15 * time.Second} // recording launches may take ten

// adminURL parses args, which may hold up to argsMax arguments beside flags. It
// returns the URL of the admin address: the one given by --admin, or the
// configured one.
func (c *console) adminURL(set *flag.FlagSet, args []string, argsMax int) (base string, rest []string, err error) {
	address := set.String("admin", "", "the admin address of a running Forebay, as host:port; empty takes the configured one")
	if rest, err = c.parse(set, args); err != nil {
		return "", nil, err
	}
	if len(rest) > argsMax {
		return "", nil, usageError(fmt.Sprintf("%q is not expected here", rest[argsMax]))
	}
	if *address == "" {
		s, err := c.configure(newFlagSet(""), nil)
		if err != nil {
			return "", nil, err
		}
		if *address = s.Admin; *address == addressOff {
			return "", nil, usageError("the configuration has admin: off, so there is no address to ask; give another with --admin")
		}
	}
	if !isAddress(*address) {
		return "", nil, usageError(fmt.Sprintf("--admin %q is not an address such as 127.0.0.1:8081", *address))
	}
	return "http://" + reachable(*address), rest, nil
}

// askAdmin sends a request without a body and returns the body of the answer.
func askAdmin(method, address string) ([]byte, error) {
	request, err := http.NewRequest(method, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := adminClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("no gateway answers at %s; is Forebay running, and --admin its admin address? %w", request.URL.Host, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, refusal(response)
	}
	const answerBytesMax = 64 << 20
	return io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
}

// askPage decodes a page of the admin address into page, and returns its text.
func askPage(base, path string, page any) ([]byte, error) {
	text, err := askAdmin(http.MethodGet, base+path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, page); err != nil {
		return nil, fmt.Errorf("%s does not answer as a Forebay of this version does: %w", base, err)
	}
	return text, nil
}

// refusal returns the error that a response other than 200 reports.
func refusal(response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if response.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%s: %s; the variable %s may hold the key", response.Status, errorMessage(text), apiKeyVar)
	}
	return fmt.Errorf("%s: %s", response.Status, errorMessage(text))
}

// errorMessage returns the message of an error body of the API.
func errorMessage(body []byte) string {
	var e struct{ Error struct{ Message string } }
	if json.Unmarshal(body, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return strings.TrimSpace(string(body))
}

// reachable turns an address to listen on into one to connect to.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func isAddress(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}
