package supervise

import "syscall"

// childAttr gives the child its own process group, and its death with the
// thread that started it.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
