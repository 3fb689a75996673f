package main

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a child a process group of its own, so that Ctrl-C in the terminal
// reaches this program alone, which then stops its children.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
