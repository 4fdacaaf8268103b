package network

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const bridgeName = "switch"

// Lab is the switch and the namespaces plugged into it.
type Lab struct {
	dir    string
	subnet netip.Prefix
	net    *Namespace

	mu    sync.Mutex
	ports map[string]*Namespace
}

// NewLab makes the switch's namespace (azpg-net) and the bridge in it. Namespaces
// are held by files in dir. The subnet is the one that all ports share.
func NewLab(dir string, subnet netip.Prefix) (*Lab, error) {
	ns, err := NewNamespace(dir, "azpg-net")
	if err != nil {
		return nil, err
	}
	lab := &Lab{
		dir:    dir,
		subnet: subnet,
		net:    ns,
		ports:  map[string]*Namespace{},
	}
	return lab, ns.withHandle(func(h *netlink.Handle) error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: bridgeName}}
		if err := h.LinkAdd(bridge); err != nil {
			return fmt.Errorf("make the bridge: %w", err)
		}
		return h.LinkSetUp(bridge)
	})
}

// Plug makes the namespace azpg-<name>, gives it the address on eth0 and joins it
// to the switch. Forwarding is on in it, as it routes for its pods.
func (l *Lab) Plug(name string, address netip.Addr) (*Namespace, error) {
	ns, err := NewNamespace(l.dir, "azpg-"+name)
	if err != nil {
		return nil, err
	}
	if err := l.cable(name, ns); err != nil {
		return nil, fmt.Errorf("plug %s into the switch: %w", name, err)
	}
	err = ns.withHandle(func(h *netlink.Handle) error {
		for _, link := range []string{"lo", "eth0"} {
			dev, err := h.LinkByName(link)
			if err != nil {
				return err
			}
			if err := h.LinkSetUp(dev); err != nil {
				return err
			}
			if link == "eth0" {
				return h.AddrAdd(dev, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, l.subnet.Bits()))})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("set up the network of %s: %w", name, err)
	}
	if err := ns.Do(enableForwarding); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ports[name] = ns
	return ns, nil
}

// enableForwarding must run inside the namespace: /proc/sys/net shows every thread
// the settings of its own.
func enableForwarding() error {
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// linkName is the name of a port of the switch. The kernel takes 15 characters.
func linkName(name string) string {
	if len(name) < unix.IFNAMSIZ {
		return name
	}
	return fmt.Sprintf("port-%x", sha256.Sum256([]byte(name)))[:unix.IFNAMSIZ-1]
}

func (l *Lab) cable(name string, ns *Namespace) error {
	target, err := netns.GetFromPath(ns.Path)
	if err != nil {
		return err
	}
	defer target.Close()
	return l.net.withHandle(func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = linkName(name)
		veth := &netlink.Veth{
			LinkAttrs:     attrs,
			PeerName:      "eth0",
			PeerNamespace: netlink.NsFd(target),
		}
		if err := h.LinkAdd(veth); err != nil {
			return fmt.Errorf("make the cable: %w", err)
		}
		bridge, err := h.LinkByName(bridgeName)
		if err != nil {
			return err
		}
		port, err := h.LinkByName(linkName(name))
		if err != nil {
			return err
		}
		if err := h.LinkSetMaster(port, bridge); err != nil {
			return err
		}
		return h.LinkSetUp(port)
	})
}

// Namespace returns the namespace that was plugged in under that name.
func (l *Lab) Namespace(name string) (*Namespace, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ns, ok := l.ports[name]
	if !ok {
		return nil, fmt.Errorf("nothing named %q is plugged into the switch", name)
	}
	return ns, nil
}

// SetConnected cuts or restores the cable between the switch and the namespace. It
// is idempotent.
func (l *Lab) SetConnected(name string, connected bool) error {
	if _, err := l.Namespace(name); err != nil {
		return err
	}
	return l.net.withHandle(func(h *netlink.Handle) error {
		port, err := h.LinkByName(linkName(name))
		if err != nil {
			return fmt.Errorf("find the port of %s: %w", name, err)
		}
		if connected {
			return h.LinkSetUp(port)
		}
		return h.LinkSetDown(port)
	})
}

// Route sends packets for the subnet through the gateway, in the namespace.
func (n *Namespace) Route(subnet netip.Prefix, gateway netip.Addr) error {
	return n.withHandle(func(h *netlink.Handle) error {
		dev, err := h.LinkByName("eth0")
		if err != nil {
			return err
		}
		route := &netlink.Route{
			LinkIndex: dev.Attrs().Index,
			Dst:       ipNet(subnet),
			Gw:        gateway.AsSlice(),
		}
		if err := h.RouteReplace(route); err != nil {
			return fmt.Errorf("route %s through %s: %w", subnet, gateway, err)
		}
		return nil
	})
}

// RouteDefault sends all other packets through the gateway. Without any route for
// them, connections to Services would fail before kube-proxy's rules see them.
func (n *Namespace) RouteDefault(gateway netip.Addr) error {
	return n.Route(netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway)
}

// AddLocal gives the namespace's loopback device one more address.
func (n *Namespace) AddLocal(address netip.Addr) error {
	return n.withHandle(func(h *netlink.Handle) error {
		dev, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		err = h.AddrAdd(dev, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, address.BitLen()))})
		if errors.Is(err, unix.EEXIST) {
			return nil
		}
		return err
	})
}

// Unplug pulls the cable of the namespace and forgets the namespace, with all that
// a machine has set up in it.
func (l *Lab) Unplug(name string) error {
	ns, err := l.Namespace(name)
	if err != nil {
		return err
	}
	err = l.net.withHandle(func(h *netlink.Handle) error {
		port, err := h.LinkByName(linkName(name))
		if err != nil {
			return fmt.Errorf("find the port of %s: %w", name, err)
		}
		return h.LinkDel(port)
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	delete(l.ports, name)
	l.mu.Unlock()
	if err := unix.Unmount(ns.Path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("close network namespace %s: %w", ns.Path, err)
	}
	return os.Remove(ns.Path)
}

func (n *Namespace) withHandle(f func(*netlink.Handle) error) error {
	ns, err := netns.GetFromPath(n.Path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", n.Path, err)
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns)
	if err != nil {
		return fmt.Errorf("talk to network namespace %s: %w", n.Path, err)
	}
	defer handle.Close()
	return f(handle)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
