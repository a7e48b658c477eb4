"""A stand-in for VirtualBox's VBoxManage, and for ssh to its machines: strict about grammar and states, and failing where it is told to."""
