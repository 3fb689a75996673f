package supervise

import "syscall"

// childAttr gives the child a process group of its own, and makes the kernel kill it
// when the thread that started it ends.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
