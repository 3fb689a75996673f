package cli

import (
	"fmt"
	"net/http"
	"time"
)

// runHealth asks a running Forebay whether it is ready. It is for container
// images without curl.
func runHealth(c *console, args []string) error {
	set := newFlagSet("health [--url URL]")
	given := set.String("url", "", "where Forebay listens; empty takes the configured address")
	if _, err := c.parse(set, args); err != nil {
		return err
	}
	url, err := c.serverURL(*given)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 5 * time.Second}
	if *given == "" {
		s, err := c.configure(newFlagSet(""), nil)
		if err != nil {
			return err
		}
		if s.Gateway.TLS.Certificate != "" {
			client.Transport = &http.Transport{TLSClientConfig: s.Gateway.TLS.Own()}
		}
	}
	response, err := client.Get(url + "/readyz")
	if err != nil {
		return fmt.Errorf("nothing answers at %s: %w", url, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return refusal(response)
	}
	return nil
}
