//! A warehouse: maps of items, customers and orders, six kinds of transactions on them, and books
//! that must balance at the end.
//!
//! Money is in cents. Invariants, checked by [`Warehouse::audit`]: what items were sold is what
//! was ordered; what customers owe is what was delivered less what was paid; what was ordered is
//! what was delivered and what still waits.

use std::collections::BTreeMap;
use std::hint::black_box;

/// Words of a record beside its figures: eight lines that a transaction reads. Chosen: large
/// enough that memory, not instructions, decides where a transaction spends its time.
const TEXT_WORDS: usize = 64;
/// Bytes of a record in its map, about: the text, the figures, the allocator's and the map's.
const RECORD_BYTES: usize = TEXT_WORDS * 8 + 88;
/// Orders a customer's record remembers.
const REMEMBERED: usize = 4;
/// Orders delivered at once, one for each district.
const DELIVERED_AT_ONCE: usize = 10;
/// Orders that wait for delivery at first, and about as many later: of 33 transactions 10 are
/// new orders and one delivers ten.
const WAITING: usize = 200;
/// Newest orders that a look at the stock goes through.
const LOOKED_AT: u64 = 20;
/// Below this an item counts as scarce, and a sale refills it.
const SCARCE: u64 = 10;

/// Eight lines of text.
type Text = [u64; TEXT_WORDS];

struct Item {
    text: Text,
    price: u64,
    in_stock: u64,
    refilled: u64,
    sold: u64,
}

struct Customer {
    text: Text,
    owes: i64,
    payments: u64,
    orders: [u64; REMEMBERED],
}

struct Order {
    customer: u32,
    cents: u64,
    lines: Vec<(u32, u64)>,
}

/// Sums over all transactions.
#[derive(Default)]
struct Books {
    units: u64,
    ordered: u64,
    delivered: u64,
    paid: u64,
}

/// One warehouse.
pub struct Warehouse {
    random: fastrand::Rng,
    items: BTreeMap<u32, Box<Item>>,
    customers: BTreeMap<u32, Box<Customer>>,
    orders: BTreeMap<u64, Order>,
    next_order: u64,
    books: Books,
}

impl Warehouse {
    /// Filled with about this many bytes: two thirds of the records are items.
    pub fn new(seed: u64, bytes: usize) -> Warehouse {
        let mut random = fastrand::Rng::with_seed(seed);
        let records = (bytes / RECORD_BYTES).max(3) as u32;
        let item = |random: &mut fastrand::Rng| Item {
            text: [random.u64(..); TEXT_WORDS],
            price: random.u64(100..10_000),
            in_stock: 100,
            refilled: 0,
            sold: 0,
        };
        let items = (0..records * 2 / 3).map(|id| (id, Box::new(item(&mut random)))).collect();
        let customer = |random: &mut fastrand::Rng| Customer {
            text: [random.u64(..); TEXT_WORDS],
            owes: 0,
            payments: 0,
            orders: [0; REMEMBERED],
        };
        let customers = (0..records / 3).map(|id| (id, Box::new(customer(&mut random)))).collect();
        let mut warehouse = Warehouse {
            random,
            items,
            customers,
            orders: BTreeMap::new(),
            next_order: 1,
            books: Books::default(),
        };
        for _ in 0..WAITING {
            warehouse.new_order();
        }
        warehouse
    }

    /// One transaction, in SPECjbb2005's proportions (from its published description, by
    /// memory): 10 new orders, 10 payments and 10 reports to one each of the others.
    pub fn transact(&mut self) {
        match self.random.u32(0..33) {
            0..10 => self.new_order(),
            10..20 => self.payment(),
            20..30 => self.report(),
            30 => self.order_status(),
            31 => self.delivery(),
            _ => self.stock_level(),
        }
    }

    fn new_order(&mut self) {
        let customer = self.any_customer();
        let lines = self.random.usize(5..=15);
        let mut order = Order { customer, cents: 0, lines: Vec::with_capacity(lines) };
        for _ in 0..lines {
            let (item, units) = (self.any_item(), self.random.u64(1..=10));
            order.lines.push((item, units));
            let Some(item) = self.items.get_mut(&item) else { continue };
            black_box(read(&item.text));
            if item.in_stock < units + SCARCE {
                item.in_stock += 100;
                item.refilled += 100;
            }
            item.in_stock -= units;
            item.sold += units;
            order.cents += units * item.price;
            self.books.units += units;
        }
        self.books.ordered += order.cents;
        if let Some(customer) = self.customers.get_mut(&customer) {
            customer.orders.rotate_right(1);
            customer.orders[0] = self.next_order;
        }
        self.orders.insert(self.next_order, order);
        self.next_order += 1;
    }

    fn payment(&mut self) {
        let (customer, cents) = (self.any_customer(), self.random.u64(100..500_000));
        let Some(customer) = self.customers.get_mut(&customer) else { return };
        black_box(read(&customer.text));
        customer.owes -= cents as i64;
        customer.payments += 1;
        self.books.paid += cents;
    }

    /// All that is known of a customer and of what it ordered lately.
    fn report(&mut self) {
        let customer = self.any_customer();
        let Some(customer) = self.customers.get(&customer) else { return };
        let mut sum = read(&customer.text).wrapping_add(customer.payments);
        for order in customer.orders.iter().filter_map(|id| self.orders.get(id)) {
            for (item, units) in &order.lines {
                sum = sum.wrapping_add(self.items.get(item).map_or(0, |i| i.price * units));
            }
        }
        black_box(sum);
    }

    fn order_status(&mut self) {
        let customer = self.any_customer();
        let last = self.customers.get(&customer).and_then(|c| self.orders.get(&c.orders[0]));
        black_box(last.map(|order| order.lines.iter().map(|(_, units)| units).sum::<u64>()));
    }

    /// The oldest orders go to their customers, who owe them from then on.
    fn delivery(&mut self) {
        for _ in 0..DELIVERED_AT_ONCE {
            let Some((_, order)) = self.orders.pop_first() else { return };
            self.books.delivered += order.cents;
            if let Some(customer) = self.customers.get_mut(&order.customer) {
                customer.owes += order.cents as i64;
            }
        }
    }

    /// How many items of the newest orders are scarce.
    fn stock_level(&mut self) {
        let newest = self.orders.range(self.next_order.saturating_sub(LOOKED_AT)..);
        let items = newest.flat_map(|(_, order)| &order.lines);
        let scarce = |(item, _): &&(u32, u64)| {
            self.items.get(item).is_some_and(|item| item.in_stock < 2 * SCARCE)
        };
        black_box(items.filter(scarce).count());
    }

    fn any_item(&mut self) -> u32 {
        self.random.u32(0..self.items.len() as u32)
    }

    fn any_customer(&mut self) -> u32 {
        self.random.u32(0..self.customers.len() as u32)
    }

    /// Whether the books balance; what does not, otherwise.
    pub fn audit(&self) -> Result<(), String> {
        let Books { units, ordered, delivered, paid } = self.books;
        let sold: u64 = self.items.values().map(|item| item.sold).sum();
        let kept = self.items.values().all(|i| i.in_stock + i.sold == 100 + i.refilled);
        let owed: i64 = self.customers.values().map(|customer| customer.owes).sum();
        let waiting: u64 = self.orders.values().map(|order| order.cents).sum();
        let balances = sold == units
            && kept
            && owed == delivered as i64 - paid as i64
            && ordered == delivered + waiting;
        if balances {
            return Ok(());
        }
        Err(format!(
            "has books that do not balance: {sold} units sold and {units} ordered, {owed} owed for \
             {delivered} delivered and {paid} paid, {ordered} ordered and {waiting} waiting"
        ))
    }
}

/// One word of each line.
fn read(text: &Text) -> u64 {
    text.iter().step_by(8).fold(0, |sum, word| sum.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_balance_and_the_warehouse_neither_empties_nor_grows() {
        let mut warehouse = Warehouse::new(7, 1 << 20);
        // 1 MiB of 600 bytes are 1747 records: 1164 items and 582 customers.
        assert_eq!((warehouse.items.len(), warehouse.customers.len()), (1164, 582));
        for _ in 0..20_000 {
            warehouse.transact();
        }
        warehouse.audit().unwrap();
        // 20,000 x 10/33 ordered, about 20,000 x 1/33 x 10 delivered.
        assert!(warehouse.next_order > 5_500, "{}", warehouse.next_order);
        assert!((1..2000).contains(&warehouse.orders.len()), "{}", warehouse.orders.len());
    }

    #[test]
    fn the_same_seed_makes_the_same_warehouse() {
        let run = |seed| {
            let mut warehouse = Warehouse::new(seed, 1 << 18);
            (0..500).for_each(|_| warehouse.transact());
            (warehouse.books.ordered, warehouse.books.paid)
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn a_lost_unit_is_found() {
        let mut warehouse = Warehouse::new(1, 1 << 18);
        warehouse.items.values_mut().next().unwrap().sold += 1;
        assert!(warehouse.audit().unwrap_err().contains("do not balance"));
    }
}
