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
// official clients and frameworks on top of them, and check what they get.
// Each must end with its "ok" line, which names the client. A client that is not
// installed is skipped, unless FOREBAY_TEST_REQUIRE names it.
func TestOfficialClients(t *testing.T) {
	required := strings.Split(os.Getenv("FOREBAY_TEST_REQUIRE"), ",")
	for _, client := range []struct {
		name, dir string
		installed func(dir string) bool
		command   []string
		ok        string
	}{
		{"node", "examples/clients/node", nodeClient, []string{"node", "chat.mjs"}, "openai npm"},
		{"node", "examples/clients/node", nodeClient, []string{"node", "tools.mjs"}, "openai npm"},
		{"node", "examples/clients/node", nodeClient, []string{"node", "structured.mjs"}, "openai npm"},
		{"node", "examples/clients/node", nodeClient, []string{"node", "responses.mjs"}, "openai npm"},
		{"ai", "examples/clients/node", vercelSDK, []string{"node", "frameworks.mjs"}, "frameworks"},
		{"python", "examples/clients/python", pythonClient, []string{"python3", "chat.py"}, "openai python"},
		{"python", "examples/clients/python", pythonClient, []string{"python3", "structured.py"}, "openai python"},
		{"python", "examples/clients/python", pythonClient, []string{"python3", "tools.py"}, "openai python"},
		{"python", "examples/clients/python", pythonClient, []string{"python3", "responses.py"}, "openai python"},
		{"anthropic", "examples/clients/python", anthropicClient, []string{"python3", "messages.py"}, "anthropic python"},
		{"frameworks", "examples/clients/python", pythonFramework, []string{"python3", "frameworks.py"}, "frameworks"},
	} {
		t.Run(client.command[1], func(t *testing.T) {
			if !client.installed(client.dir) {
				if slices.Contains(required, client.name) {
					t.Fatalf("%s: what it needs is required (%s) and not installed; see examples/clients/README.md", client.command[1], client.name)
				}
				t.Skipf("SKIPPED: %s: what it needs (%s) is not installed; see examples/clients/README.md", client.command[1], client.name)
			}
			p := serve(t)
			cmd := exec.CommandContext(t.Context(), client.command[0], append(client.command[1:], p.url+"/v1")...)
			cmd.Dir = client.dir
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "\nok: "+client.ok) {
				t.Errorf("%v: %v\n%s", client.command, err, out)
			}
		})
	}
}

func nodeClient(dir string) bool { return nodePackage(dir, "openai") }
func vercelSDK(dir string) bool {
	return nodePackage(dir, "ai") && nodePackage(dir, filepath.Join("@ai-sdk", "openai-compatible"))
}

func nodePackage(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, "node_modules", name, "package.json"))
	return err == nil
}

func pythonClient(string) bool {
	return exec.Command("python3", "-c", "import openai").Run() == nil
}

func anthropicClient(string) bool {
	return exec.Command("python3", "-c", "import anthropic").Run() == nil
}

// pythonFramework says whether one of those is there that frameworks.py tries.
func pythonFramework(string) bool {
	return exec.Command("python3", "-c", `import openai, importlib.util, sys
sys.exit(not any(map(importlib.util.find_spec, ("langchain_openai", "instructor", "pydantic_ai", "litellm"))))`).Run() == nil
}
