package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOfficialClients runs the programs of examples/clients, which use the
// official OpenAI clients and check what they get. Each must end with its
// "ok" line, which names the client's version. A client that is not installed
// is skipped, unless FOREBAY_TEST_REQUIRE names it.
func TestOfficialClients(t *testing.T) {
	required := strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ",")
	for _, client := range []struct {
		name, dir string
		installed func(dir string) bool
		command   []string
	}{
		{"node", "examples/clients/node", nodeClient, []string{"node", "chat.mjs"}},
		{"node", "examples/clients/node", nodeClient, []string{"node", "tools.mjs"}},
		{"node", "examples/clients/node", nodeClient, []string{"node", "structured.mjs"}},
		{"python", "examples/clients/python", pythonClient, []string{"python3", "chat.py"}},
		{"python", "examples/clients/python", pythonClient, []string{"python3", "structured.py"}},
		{"python", "examples/clients/python", pythonClient, []string{"python3", "tools.py"}},
	} {
		t.Run(client.command[1], func(t *testing.T) {
			if !client.installed(client.dir) {
				if slices.Contains(required, client.name) {
					t.Fatalf("the OpenAI client for %s is required and not installed; see examples/clients/README.md", client.name)
				}
				t.Skipf("the OpenAI client for %s is not installed; see examples/clients/README.md", client.name)
			}
			p := serve(t)
			cmd := exec.CommandContext(t.Context(), client.command[0], append(client.command[1:], p.url+"/v1")...)
			cmd.Dir = client.dir
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "\nok: openai "+map[string]string{"node": "npm", "python": "python"}[client.name]) {
				t.Errorf("%v: %v\n%s", client.command, err, out)
			}
		})
	}
}

func nodeClient(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "node_modules", "openai", "package.json"))
	return err == nil
}

func pythonClient(string) bool {
	return exec.Command("python3", "-c", "import openai").Run() == nil
}
